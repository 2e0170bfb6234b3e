/** G5: a fork of 10 000 tables, which is 40 000 files, against one of a new service. */
import { bareKit } from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import { openCloud } from './lib/cloud.ts';
import { CHEAPEST, forkByHand, METHOD_IN_WORDS } from './lib/copies.ts';
import type { FileSystem } from './lib/filesystems.ts';
import { interleave, measured, partsInWords, valuesOf } from './lib/measure.ts';
import { createTables, forkOurs, makeSource } from './lib/source.ts';
import { compared, skipped, type Row } from './lib/table.ts';

const TABLES = 10_000;

export const forkTables: Bench = {
  name: 'fork-tables',
  title: `G5: fork of ${TABLES} tables`,
  run: async (context) => {
    const rows: Row[] = [];
    for (const fileSystem of await context.fileSystems()) {
      if (typeof fileSystem === 'string')
        rows.push(skipped('G5', 'fork of many tables', fileSystem));
      else rows.push(...(await onFileSystem(context, fileSystem)));
    }
    return rows;
  },
};

async function onFileSystem(
  { rounds, say }: Context,
  { name, directory }: FileSystem,
): Promise<Row[]> {
  say(`   on ${name}`);
  const cloud = await openCloud(directory);
  const kit = await bareKit(cloud);
  const { cloneMethod } = kit.machine;
  const empty = await makeSource(cloud, kit, null);
  const full = await makeSource(cloud, kit, (client) => createTables(client, TABLES));
  const [ours, oursEmpty] = [
    measured(() => forkOurs(cloud, full)),
    measured(() => forkOurs(cloud, empty)),
  ];
  const floor = measured(() => forkByHand(kit, full, CHEAPEST[cloneMethod]));
  await interleave(rounds, [ours, oursEmpty, floor]);
  await cloud.end();
  const row = {
    goal: 'G5',
    what: `fork of ${TABLES} tables → SELECT, ${name} (${cloneMethod})`,
    unit: 'ms',
    ours: valuesOf(ours),
  } as const;
  return [
    compared({
      ...row,
      against: 'fork of a service without tables',
      theirs: valuesOf(oursEmpty),
      ratio: 'ours/theirs',
      bound: cloneMethod === 'copy' ? null : { atMost: cloneMethod === 'subvolume' ? 1.5 : 12 },
      limit: `ms: ${partsInWords(ours)}; without tables: ${partsInWords(oursEmpty)}`,
    }),
    compared({
      ...row,
      goal: '',
      against: METHOD_IN_WORDS[CHEAPEST[cloneMethod]],
      theirs: valuesOf(floor),
      ratio: 'ours/theirs',
      bound: null,
      limit: `of the floor: ${partsInWords(floor)}`,
    }),
  ];
}
