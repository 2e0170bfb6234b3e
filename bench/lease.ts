/**
 * Leases: from the call to its answer, with which a database can be used, of a new fork, a warm one
 * and a database in a shared server.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench, Context } from './lib/bench.ts';
import {
  ask,
  call,
  create,
  openCloud,
  openMetadata,
  untilStatus,
  type Cloud,
} from './lib/cloud.ts';
import type { FileSystem } from './lib/filesystems.ts';
import { idle, interleave, measured, valuesOf, type Case } from './lib/measure.ts';
import { bounded, type Row } from './lib/table.ts';

export const lease: Bench = {
  name: 'lease',
  title: 'Leases: call → its answer, when a database can be used',
  run: async (context: Context) => {
    const rows: Row[] = [];
    for (const fileSystem of await context.fileSystems())
      if (typeof fileSystem !== 'string') rows.push(...(await onFileSystem(context, fileSystem)));
    return rows;
  },
};

async function onFileSystem({ rounds }: Context, { name, directory }: FileSystem): Promise<Row[]> {
  const cloud = await openCloud(directory);
  const metadata = await openMetadata(cloud);
  const parent = await create(cloud);
  await untilStatus(cloud, parent.id, 'READY');
  const untilWarm = async (count: number): Promise<void> => {
    for (;;) {
      const { rowCount } = await metadata.query(
        `select from services s join leased_servers l on l.service_id = s.id
         where s.project_id is null and not s.deleting and s.provisioned and s.reachable`,
      );
      if ((rowCount ?? 0) >= count) return;
      await sleep(20);
    }
  };
  const cold = measured(async () => {
    // Without a demand nothing is warm.
    await metadata.query('delete from lease_demands');
    for (;;) {
      const { rowCount } = await metadata.query(
        'select from services where project_id is null and not deleting',
      );
      if (rowCount === 0) break;
      await sleep(20);
    }
    await idle();
    return takeOne(cloud, parent.id, 'server');
  });
  const warm = measured(async () => {
    await untilWarm(2);
    await idle();
    return takeOne(cloud, parent.id, 'server');
  });
  const database = measured(() => takeOne(cloud, parent.id, 'database'));
  await interleave(rounds, [cold, warm, database]);
  await metadata.end();
  await cloud.end();
  return [
    row(name, cold, 'a new fork', 150),
    row(name, warm, 'a warm fork', 30),
    row(name, database, 'a database in a shared server', null),
  ];
}

const row = (fileSystem: string, of: Case, what: string, atMost: number | null): Row =>
  bounded({
    goal: '',
    what: `lease of ${what}, ${fileSystem}`,
    unit: 'ms',
    ours: valuesOf(of),
    bound: atMost === null ? null : { atMost },
    limit: '',
  });

/** @returns the time until the answer, in ms */
async function takeOne(cloud: Cloud, from: string, reset: string): Promise<number> {
  const begun = performance.now();
  const { text } = await call(cloud, 'POST', '/leases', { from, reset });
  const tookMs = performance.now() - begun;
  const id = /"id":"(\w+)"/.exec(text)?.[1];
  if (id === undefined || !text.includes('"ready":true'))
    throw new Error(`no lease was taken: ${text}`);
  await ask(cloud, 'DELETE', `/leases/${id}`);
  return tookMs;
}
