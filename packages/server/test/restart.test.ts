/** A restart of the control plane while everything is healthy. */
import { afterAll, beforeAll, describe as anyDescribe, expect, test } from 'vitest';
import type { Installation } from './harness.ts';
import { findProgram } from './probe.ts';
import {
  createSet,
  installForSets,
  nodeOf,
  read,
  startReaders,
  untilServing,
  untilShown,
  withTable,
} from './sets.ts';
// Without HAProxy there are no sets.
const describe = anyDescribe.runIf((await findProgram('haproxy')) !== null);

describe('a restart of the control plane', () => {
  let cloud: Installation;
  beforeAll(async () => {
    cloud = await installForSets();
  });
  afterAll(async () => {
    expect(await cloud.destroy()).toEqual([]);
  });

  test('leaves a healthy read replica set and its service as they are', async () => {
    const service = await withTable('healthy', { replica_count: 1, sync_replica_count: 1 });
    const set = await createSet(service, 2);
    await untilShown(set, 1);
    const pids = await Promise.all([1, 2].map((n) => nodeOf(set, n)));
    const session = await read(set);
    const readers = startReaders(set, 1);
    for (const name of ['SIGTERM', 'SIGKILL'] as const) {
      await cloud.stop(name);
      await cloud.up();
      await untilServing(set, [1, 2]);
      await readers.more(20);
    }
    expect(await readers.stop()).toMatchObject({ refused: [] });
    expect((await session.query('select n from t')).rows).toEqual([{ n: 1 }]);
    await session.end();
    expect(await Promise.all([1, 2].map((n) => nodeOf(set, n)))).toEqual(pids);
    const kinds = async (id: string) => (await cloud.operations(id)).map(({ kind }) => kind);
    expect(await kinds(set.id)).toEqual(['create']);
    expect(await kinds(service.service_id)).toEqual(['create']);
  });
});
