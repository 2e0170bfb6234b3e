/**
 * PostgreSQL by hand against Howdah, with the same binaries and the same work: services by their
 * sizes here, HA, pooler and read replicas in `plain-topologies.ts`.
 */
import { SERVICE_SIZES, type Size } from '@howdah/contract';
import { bareKit, type BareKit } from './lib/bare.ts';
import type { Bench, Context } from './lib/bench.ts';
import { connectOverTls, create, openCloud, type Cloud } from './lib/cloud.ts';
import type { FileSystem } from './lib/filesystems.ts';
import { valuesOf, type Case } from './lib/measure.ts';
import { PGBENCH_MISSING } from './lib/pgbench.ts';
import { startPlain } from './lib/plain-server.ts';
import { has } from './lib/run.ts';
import { compared, skipped, type Bound, type Row } from './lib/table.ts';
import { topologiesOn } from './plain-topologies.ts';
import {
  findDumpPrograms,
  measureWorks,
  subjectByHand,
  subjectOf,
  worksOf,
  type Subject,
  type Work,
} from './plain-work.ts';

export const plain: Bench = {
  name: 'plain',
  title: 'PostgreSQL by hand against services: TPC-B, reads, loads, indexes, dumps, connections',
  run: async (context) => {
    if (!(await has('pgbench'))) return [skipped('', 'plain', PGBENCH_MISSING)];
    const rows: Row[] = [];
    for (const [index, fileSystem] of (await context.fileSystems()).entries()) {
      if (typeof fileSystem === 'string') {
        rows.push(skipped('', 'plain', fileSystem));
        continue;
      }
      // Sizes and topologies differ by processors and memory: they are measured on one file system.
      const isFirst = index === 0;
      rows.push(...(await sizesOn(context, fileSystem, isFirst)));
      if (isFirst) rows.push(...(await topologiesOn(context, fileSystem)));
    }
    return rows;
  },
};

/** A service of a size, and PostgreSQL by hand with as many shared buffers. */
type Sized = {
  name: string;
  hasGoals: boolean;
  sharedBuffers: string;
  service: Subject;
  byHand: Subject;
};

/** The sizes that are measured; the body of a create has nothing for the default size. */
function sizesOf({ machine }: BareKit): { name: string; body: object }[] {
  const { cpuMillis, memoryBytes } = machine.capacity;
  const [smallest] = SERVICE_SIZES;
  const largest = SERVICE_SIZES.findLast(
    (size) => size.cpuMillis <= cpuMillis && size.memoryGbs * 1024 ** 3 <= memoryBytes,
  );
  const ofMachine = largest === undefined || largest === smallest ? [] : [largest];
  return [
    { name: `the default size, ${inWords(smallest)}`, body: {} },
    ...ofMachine.map((size) => ({
      name: `the size of the machine, ${inWords(size)}`,
      body: { cpu_millis: size.cpuMillis, memory_gbs: size.memoryGbs },
    })),
    { name: 'size shared', body: { cpu_millis: 'shared', memory_gbs: 'shared' } },
  ];
}

const inWords = ({ cpuMillis, memoryGbs }: Exclude<Size, 'shared'>): string =>
  `${cpuMillis}/${memoryGbs}`;

/** @param allSizes whether the sizes beside the default one are measured too */
async function sizesOn(
  context: Context,
  { name, directory }: FileSystem,
  allSizes: boolean,
): Promise<Row[]> {
  const { rounds, say, temp } = context;
  const cloud = await openCloud(directory);
  const kit = await bareKit(cloud);
  const programs = await findDumpPrograms(kit.installation);
  const works = worksOf(cloud, context, programs, temp);
  const defaults = await startPlain(kit, null);
  const byDefaults = subjectByHand(cloud, defaults.server, defaults.password);
  const byHand = new Map([[await sharedBuffersOf(cloud, byDefaults), byDefaults]]);
  const ends = [defaults.forget];
  const sized: Sized[] = [];
  for (const [index, { name: size, body }] of sizesOf(kit).entries()) {
    if (index > 0 && !allSizes) continue;
    const service = subjectOf(cloud, await create(cloud, body));
    const sharedBuffers = await sharedBuffersOf(cloud, service);
    let equal = byHand.get(sharedBuffers);
    if (equal === undefined) {
      const { server, password, forget } = await startPlain(kit, sharedBuffers);
      ends.push(forget);
      equal = subjectByHand(cloud, server, password);
      byHand.set(sharedBuffers, equal);
    }
    sized.push({ name: size, hasGoals: index === 0, sharedBuffers, service, byHand: equal });
  }
  // Those that are compared are measured one right after the other.
  const pairs = sized.flatMap((one) => [one.service, one.byHand]);
  const subjects = [...new Set([...pairs, byDefaults])];
  say(`   ${works.length} kinds of work at ${subjects.length} servers on ${name}`);
  const cases = await measureWorks(rounds, works, subjects);
  for (const end of ends) await end();
  await cloud.end();
  const rows = sized.flatMap((one) =>
    works.flatMap((work, index) =>
      rowsOf(name, one, work, (subject) => cases[index]?.[subjects.indexOf(subject)], byDefaults),
    ),
  );
  return programs === null ? [...rows, dumpsSkipped(name, kit)] : rows;
}

async function sharedBuffersOf({ ca }: Cloud, { target }: Subject): Promise<string> {
  const client = await connectOverTls(ca, target.port, target.password);
  const { rows } = await client.query<{ value: string }>(
    "select current_setting('shared_buffers') as value",
  );
  client.connection.stream.destroy();
  return rows[0]?.value ?? '';
}

/** The row against equal shared_buffers, and the one against PostgreSQL's defaults. */
function rowsOf(
  fileSystem: string,
  { name, hasGoals, sharedBuffers, service, byHand }: Sized,
  { name: work, unit, bound, boundToDefaults, limit }: Work,
  caseOf: (subject: Subject) => Case | undefined,
  byDefaults: Subject,
): Row[] {
  const row = (against: string, subject: Subject, goal: Bound): Row[] => {
    const [ours, theirs] = [caseOf(service), caseOf(subject)];
    if (ours === undefined || theirs === undefined) return [];
    return [
      compared({
        goal: '',
        what: `${work}; ${name}, ${fileSystem}`,
        unit,
        ours: valuesOf(ours),
        against,
        theirs: valuesOf(theirs),
        ratio: 'ours/theirs',
        bound: hasGoals ? goal : null,
        limit,
      }),
    ];
  };
  return [
    ...row(`by hand, shared_buffers ${sharedBuffers} as the service`, byHand, bound),
    ...(boundToDefaults === undefined
      ? []
      : row('by hand, the defaults of PostgreSQL', byDefaults, boundToDefaults)),
  ];
}

const dumpsSkipped = (fileSystem: string, { installation: { major } }: BareKit): Row =>
  skipped(
    '',
    `pg_dump -Fc and pg_restore, ${fileSystem}`,
    `pg_dump and pg_restore of PostgreSQL ${major} are missing: ` +
      `apt-get install postgresql-client-${major}`,
  );
