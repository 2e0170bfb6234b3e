import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  CLUSTER,
  ID,
  NAMESPACE,
  newSpec,
  openCloud,
  runServers,
  until,
  untilAwaited,
  untilStep,
  type Cloud,
} from './engine.testing.ts';

const BACKUPS = `/apis/postgresql.cnpg.io/v1${NAMESPACE}/backups`;
const STORE = {
  id: 'store12345',
  sinceMs: 0,
  endpoint: 'https://127.0.0.1:1',
  bucket: 'backups',
  region: 'eu',
  keyId: 'id',
  key: 'key',
  caPem: null,
};

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(() => cloud.close());

const names = (): string[] =>
  [...cloud.fake.objects.keys()].filter((path) => path.startsWith(`${BACKUPS}/`));

test('a base backup that never ends is replaced after a day', async () => {
  cloud.store = STORE;
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  expect(cloud.fake.objects.get(CLUSTER)).toMatchObject({ spec: { plugins: [{ enabled: true }] } });
  const keep = () => cloud.engine.backups.keep(ID, { removes: false, quotaBytes: 1 });
  const put = async (hours: number): Promise<void> => {
    const creationTimestamp = new Date(Date.now() - hours * 3_600_000).toISOString();
    cloud.fake.put(`${BACKUPS}/old`, {
      metadata: { creationTimestamp, labels: { 'howdah.io/service': ID }, uid: 'u' },
      spec: { method: 'plugin' },
      status: { phase: 'running' },
    });
    const why = `that of ${creationTimestamp} has not ended`;
    const problem = async () => (await cloud.engine.backups.describe(ID)).problem;
    await until(async () => (await problem())?.includes(why) === true);
  };
  await put(23);
  await keep();
  expect(names()).toEqual([`${BACKUPS}/old`]);
  await put(24);
  await keep();
  expect(names()).toEqual([expect.stringMatching(/\/backups\/s-.*-base$/)]);
});
