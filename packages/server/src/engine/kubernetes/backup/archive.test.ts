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
  untilRemoved,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';
import { listOf, STORE as PLACE, withStore } from './s3.testing.ts';

const BACKUPS = `/apis/postgresql.cnpg.io/v1${NAMESPACE}/backups`;
const STORE = { ...PLACE, endpoint: 'https://127.0.0.1:1' };
const OBJECT_STORE = `/apis/barmancloud.cnpg.io/v1${NAMESPACE}/objectstores/s-${ID}`;
const RECORD = `/api/v1${NAMESPACE}/configmaps/s-${ID}-archived`;
const KEY = `/api/v1${NAMESPACE}/secrets/howdah-object-store-kube`;

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
  // Until WAL is known to be in the place, a base backup may go to that of before.
  expect(names()).toEqual([]);
  const labels = { 'howdah.io/region': 'kube', 'howdah.io/service': ID };
  cloud.fake.put(OBJECT_STORE, { metadata: { labels, uid: 'u' } });
  cloud.fake.put(`/api/v1${NAMESPACE}/configmaps/s-${ID}`, { metadata: { labels, uid: 'u' } });
  cloud.fake.put(RECORD, {
    metadata: { labels, uid: 'u' },
    data: { store: STORE.id, to: new Date().toISOString() },
  });
  await until(async () => {
    await keep();
    return names().length > 0;
  });
  expect(names()).toEqual([expect.stringMatching(/\/backups\/s-.*-base$/)]);
});

test('a purge removes a key that no archived service needs', async () => {
  cloud.store = STORE;
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  expect(cloud.fake.objects.has(KEY)).toBe(true);
  // The service was refused after the key was written.
  cloud.fake.take(OBJECT_STORE);
  cloud.fake.take(CLUSTER);
  await untilRemoved(cloud);
  expect(cloud.fake.objects.has(KEY)).toBe(false);
});

test('a purge keeps the key while another service of the project archives', async () => {
  cloud.store = STORE;
  await untilAwaited(cloud, await newSpec(cloud, { id: 'other12345' }));
  const other = OBJECT_STORE.replace(ID, 'other12345');
  // Without the right to list them, there seem to be none.
  cloud.fake.take(other);
  await untilRemoved(cloud);
  expect(cloud.fake.objects.has(KEY)).toBe(true);
});

test('a fork of a moment has the limits of any size that its parent may have had', async () => {
  cloud.store = STORE;
  const targetTime = '2026-11-27T10:00:00.000Z';
  const origin = { parent: 'parent1234', strategy: 'PITR', targetTime } as const;
  await untilAwaited(cloud, await newSpec(cloud, { origin }));
  expect(cloud.fake.objects.get(CLUSTER)).toMatchObject({
    metadata: { annotations: { 'kubectl.kubernetes.io/restartedAt': '0, recovered' } },
    spec: {
      bootstrap: { recovery: { recoveryTarget: { targetTime } } },
      postgresql: { parameters: { max_connections: '1000', max_worker_processes: '67' } },
    },
  });
});

test('a purge looks into the bucket where ObjectStores cannot be listed', async () => {
  const keys = new Set(['1', '2'].map((name) => `howdah/${STORE.id}/s-${ID}/${name}`));
  await withStore(
    ({ method, url = '' }, answer) => {
      if (method === 'DELETE') keys.delete(url.slice(`/${STORE.bucket}/`.length));
      answer.end(listOf([...keys].map((key) => `<Key>${key}</Key>`).join('')));
    },
    async (store) => {
      cloud.store = store;
      cloud.fake.hide('objectstores');
      cloud.fake.endWatches(true);
      await until(async () => !cloud.engine.capabilities.actions.forkPast.possible);
      await untilRemoved(cloud);
    },
  );
  expect([...keys]).toEqual([]);
});
