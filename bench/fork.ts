/**
 * G4, G6: from the request for a fork of a running service to the first row over TLS, by size,
 * against the same by hand, cp and pg_basebackup.
 */
import { bareKit, type BareKit } from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import { openCloud, type Cloud } from './lib/cloud.ts';
import {
  CHEAPEST,
  debianMajor,
  forkByHand,
  forkOfPeer,
  makePeer,
  METHOD_IN_WORDS,
} from './lib/copies.ts';
import type { FileSystem } from './lib/filesystems.ts';
import { interleave, measured, partsInWords, valuesOf, type Case } from './lib/measure.ts';
import { fill, forkOurs, makeSource } from './lib/source.ts';
import { compared, skipped, type Bound, type Row } from './lib/table.ts';

/**
 * Rounds of a case that copies bytes: each takes seconds per gigabyte, and the
 * tenth round adds little.
 */
const COPY_ROUNDS = 4;
/** The sizes between which the cost of a fork must not differ. */
const [SMALL_MB, LARGE_MB] = [10, 10_000];

export const fork: Bench = {
  name: 'fork',
  title: 'G4, G6: fork of a running service → first SELECT over TLS, by size',
  run: async (context) => {
    const rows: Row[] = [];
    for (const fileSystem of await context.fileSystems()) {
      if (typeof fileSystem === 'string') rows.push(skipped('G4', 'fork', fileSystem));
      else rows.push(...(await onFileSystem(context, fileSystem)));
    }
    return rows;
  },
};

type Sized = { megabytes: number; ours: Case; floor: Case; bytes: Case | null; peer: Case | null };

async function onFileSystem(
  { rounds, sizesMb, say }: Context,
  { name, directory }: FileSystem,
): Promise<Row[]> {
  const cloud = await openCloud(directory);
  const kit = await bareKit(cloud);
  const major = await debianMajor();
  const sized: Sized[] = [];
  for (const megabytes of sizesMb) {
    say(`   ${megabytes} MB on ${name}`);
    sized.push(await prepare(cloud, kit, megabytes, major));
  }
  const copies = sized.flatMap(({ bytes, peer }) => [bytes, peer]).filter((one) => one !== null);
  const constant = sized.flatMap(({ ours, floor }) => [ours, floor]);
  await interleave(Math.min(rounds, COPY_ROUNDS), [...constant, ...copies]);
  if (rounds > COPY_ROUNDS && kit.machine.cloneMethod !== 'copy')
    await interleave(rounds - COPY_ROUNDS + 1, constant);
  await cloud.end();
  return [...sized.flatMap((one) => rowsOf(kit, name, major, one)), ...growth(kit, name, sized)];
}

async function prepare(
  cloud: Cloud,
  kit: BareKit,
  megabytes: number,
  major: string | null,
): Promise<Sized> {
  const load = (client: Parameters<typeof fill>[0]) => fill(client, megabytes);
  const [source, peer] = await Promise.all([
    makeSource(cloud, kit, load),
    major === null ? null : makePeer(kit, major, load),
  ]);
  const cheapest = CHEAPEST[kit.machine.cloneMethod];
  return {
    megabytes,
    ours: measured(() => forkOurs(cloud, source)),
    floor: measured(() => forkByHand(kit, source, cheapest)),
    bytes: cheapest === 'bytes' ? null : measured(() => forkByHand(kit, source, 'bytes')),
    peer: peer === null ? null : measured(() => forkOfPeer(kit, peer)),
  };
}

function rowsOf(
  kit: BareKit,
  name: string,
  major: string | null,
  { megabytes, ours, floor, bytes, peer }: Sized,
): Row[] {
  const { cloneMethod } = kit.machine;
  const row = {
    what: `fork of ${megabytes} MB → SELECT, ${name} (${cloneMethod})`,
    unit: 'ms',
    ours: valuesOf(ours),
  } as const;
  const limit = `ms of ours: ${partsInWords(ours)}`;
  const timesFaster: Bound =
    megabytes < LARGE_MB || cloneMethod === 'copy'
      ? null
      : { atLeast: cloneMethod === 'subvolume' ? 300 : 100 };
  return [
    compared({
      ...row,
      goal: cloneMethod === 'copy' ? 'G6' : 'G4',
      against: METHOD_IN_WORDS[CHEAPEST[cloneMethod]],
      theirs: valuesOf(floor),
      ratio: 'ours/theirs',
      bound: { atMost: cloneMethod === 'copy' ? 1.1 : 1.3 },
      limit: `${limit}; of the floor: ${partsInWords(floor)}`,
    }),
    ...(bytes === null
      ? []
      : [
          compared({
            ...row,
            goal: '',
            against: METHOD_IN_WORDS.bytes,
            theirs: valuesOf(bytes),
            ratio: 'theirs/ours',
            bound: null,
            limit: `of the copy: ${partsInWords(bytes)}`,
          }),
        ]),
    peer === null || major === null
      ? skipped(
          'G4',
          `pg_basebackup, ${name}`,
          'pg_basebackup or its server is missing (apt-get install postgresql)',
        )
      : compared({
          ...row,
          goal: timesFaster === null ? '' : 'G4',
          against: `pg_basebackup + pg_ctl start of PostgreSQL ${major} with the same data, no TLS`,
          theirs: valuesOf(peer),
          ratio: 'theirs/ours',
          bound: timesFaster,
          limit: `of the peer: ${partsInWords(peer)}`,
        }),
  ];
}

/**
 * How much more a fork of the largest source costs than one of the smallest,
 * where clones are by reference.
 */
function growth(kit: BareKit, name: string, sized: readonly Sized[]): Row[] {
  const [small, large] = [sized[0], sized.at(-1)];
  if (
    small === undefined ||
    large === undefined ||
    small === large ||
    kit.machine.cloneMethod === 'copy'
  )
    return [];
  return [
    compared({
      goal: 'G4',
      what: `fork of ${large.megabytes} MB, ${name}`,
      unit: 'ms',
      ours: valuesOf(large.ours),
      against: `fork of ${small.megabytes} MB`,
      theirs: valuesOf(small.ours),
      ratio: 'ours/theirs',
      bound: small.megabytes === SMALL_MB && large.megabytes === LARGE_MB ? { atMost: 1.2 } : null,
      limit: 'the number of files grows by one for a gigabyte',
    }),
  ];
}
