/** The work that `plain` measures: the same statements for a service and for PostgreSQL by hand. */
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import type { Client } from 'pg';
import {
  versionOf,
  type Installation,
} from '../packages/server/src/engine/local/postgres/installations.ts';
import { findServer } from '../packages/server/src/engine/local/postgres/server.ts';
import { createLayout } from '../packages/server/src/engine/local/host/layout.ts';
import { connectBare, type BareServer } from './lib/bare.ts';
import { connectOverTls, selectOverTls, type Cloud, type Service } from './lib/cloud.ts';
import { interleave, measured, time, type Case } from './lib/measure.ts';
import { caFileOf, pgbench, rateOf, runClient, type Target } from './lib/pgbench.ts';
import type { Bound } from './lib/table.ts';

/** A server that is measured. */
export type Subject = {
  target: Target;
  /** Writes a checkpoint of it, so that no work pays for the writes of the one before. */
  checkpoint: () => Promise<void>;
};

export type Work = {
  name: string;
  unit: 'tps' | 'ms';
  take: (subject: Subject) => Promise<number>;
  /** The goal of the default size against PostgreSQL by hand with equal shared_buffers. */
  bound: Bound;
  /** The same against PostgreSQL's defaults; undefined: there is no such row. */
  boundToDefaults?: Bound;
  limit: string;
};

/** The length of the samples with a fixed time, and the scale of pgbench. */
export type Lengths = { seconds: number; scale: number };

const CLIENTS = 4;
const ROWS = 1_000_000;
/** First queries of one sample, one after the other. */
const FIRST_QUERIES = 20;

/** A service as a subject. */
export function subjectOf(cloud: Cloud, { id, port, password }: Service): Subject {
  const layout = createLayout(join(cloud.home, 'data'));
  const checkpoint = async (): Promise<void> => {
    const paths = layout.member(id, layout.primaryOf(id));
    const server = { paths, port: (await findServer(paths))?.port ?? port, process: null };
    await checkpointOf(server);
  };
  return {
    target: { port, database: 'tsdb', password, caFile: caFileOf(cloud) },
    checkpoint,
  };
}

/** A server by hand as a subject. */
export function subjectByHand(cloud: Cloud, server: BareServer, password: string): Subject {
  const { port } = server;
  return {
    target: { port, database: 'tsdb', password, caFile: caFileOf(cloud) },
    checkpoint: () => checkpointOf(server),
  };
}

async function checkpointOf(server: BareServer): Promise<void> {
  const client = await connectBare(server);
  await client.query('checkpoint');
  client.connection.stream.destroy();
}

/** Makes the tables of pgbench. */
export const load = ({ target }: Subject, { scale }: Lengths): Promise<string> =>
  pgbench(target, ['-i', '-q', '-s', String(scale)]);

/** TPC-B. */
export const writes = ({ seconds }: Lengths): Work => ({
  name: `TPC-B, ${CLIENTS} clients`,
  unit: 'tps',
  take: async ({ target, checkpoint }) => {
    await checkpoint();
    return rateOf(await pgbench(target, ['-n', ...during(seconds, CLIENTS)]));
  },
  bound: { atLeast: 0.95 },
  boundToDefaults: { atLeast: 1 },
  limit: 'the archive gets each WAL segment; wal_level is logical',
});

export const reads = ({ seconds }: Lengths): Work => ({
  name: `pgbench -S, ${CLIENTS} clients`,
  unit: 'tps',
  take: async ({ target }) =>
    rateOf(await pgbench(target, ['-n', '-S', ...during(seconds, CLIENTS)])),
  bound: { atLeast: 0.95 },
  boundToDefaults: { atLeast: 1 },
  limit: 'pgbench shares the processors with the server',
});

const during = (seconds: number, clients: number): string[] => [
  '-T',
  String(seconds),
  '-c',
  String(clients),
  '-j',
  String(Math.min(2, clients)),
];

/**
 * The work of one server, in its order: each needs what the one before has left. The tables are
 * loaded again in each round.
 *
 * @param programs the directory of pg_dump and pg_restore; null: dumps are left out
 * @param temp the directory of the dumps
 */
export function worksOf(
  { ca }: Cloud,
  lengths: Lengths,
  programs: string | null,
  temp: string,
): Work[] {
  return [
    {
      name: `pgbench -i, scale ${lengths.scale}`,
      unit: 'ms',
      take: async (subject) => {
        await subject.checkpoint();
        return (await time(() => load(subject, lengths))).ms;
      },
      bound: { atMost: 1.2 },
      limit: 'the archive gets each WAL segment',
    },
    writes(lengths),
    reads(lengths),
    ...connections(ca, lengths),
    ...tables(ca),
    ...(programs === null ? [] : dumps(programs, temp)),
  ];
}

function connections(ca: string, { seconds }: Lengths): Work[] {
  return [
    {
      name: 'a new connection for each SELECT, pgbench -C, 1 client',
      unit: 'ms',
      take: async ({ target }) =>
        1000 / rateOf(await pgbench(target, ['-n', '-S', '-C', ...during(seconds, 1)])),
      bound: { atMost: 1.3 },
      limit: 'TLS and the 4096 rounds of SCRAM in the client',
    },
    {
      name: 'first query: connect and select 1, from Node',
      unit: 'ms',
      take: async ({ target: { port, password } }) => {
        const { ms } = await time(async () => {
          for (let n = 0; n < FIRST_QUERIES; n++) await selectOverTls(ca, port, password);
        });
        return ms / FIRST_QUERIES;
      },
      bound: null,
      limit: 'the client: TLS and SCRAM in Node',
    },
  ];
}

function tables(ca: string): Work[] {
  const timed = async (
    { target, checkpoint }: Subject,
    sql: readonly string[],
  ): Promise<number> => {
    await checkpoint();
    const client = await connectOverTls(ca, target.port, target.password);
    return inSession(client, sql);
  };
  return [
    {
      name: `a table of ${ROWS} rows, create table as`,
      unit: 'ms',
      take: async (subject) => {
        const client = await connectOverTls(ca, subject.target.port, subject.target.password);
        await inSession(client, ['drop table if exists plain_rows']);
        return timed(subject, [
          `create table plain_rows as select g as id, (g * 7919::bigint) % ${ROWS} as n,
             md5(g::text) as t from generate_series(1, ${ROWS}) g`,
        ]);
      },
      bound: null,
      limit: 'the archive gets each WAL segment',
    },
    {
      name: 'two indexes of that table, of a number and of a text',
      unit: 'ms',
      take: async (subject) =>
        timed(subject, ['create index on plain_rows (n)', 'create index on plain_rows (t)']),
      bound: { atMost: 1.1 },
      limit: 'maintenance_work_mem and the number of workers, by the size',
    },
  ];
}

/** @returns how long the statements took, in ms; the session ends */
async function inSession(client: Client, statements: readonly string[]): Promise<number> {
  const { ms } = await time(async () => {
    for (const statement of statements) await client.query(statement);
  });
  client.connection.stream.destroy();
  return ms;
}

function dumps(programs: string, temp: string): Work[] {
  const fileOf = ({ target }: Subject): string => join(temp, `${target.port}.dump`);
  return [
    {
      name: 'pg_dump -Fc of the tables of pgbench',
      unit: 'ms',
      take: async (subject) => {
        const words = ['-Fc', '-t', 'pgbench_*', '-f', fileOf(subject)];
        const { ms } = await time(() =>
          runClient(join(programs, 'pg_dump'), subject.target, words),
        );
        return ms;
      },
      bound: null,
      limit: 'pg_dump compresses in one process',
    },
    {
      name: 'pg_restore of that dump',
      unit: 'ms',
      take: async (subject) => {
        await subject.checkpoint();
        const { target } = subject;
        const words = ['--clean', '--if-exists', '--exit-on-error', '-d', target.database];
        const { ms } = await time(() =>
          runClient(join(programs, 'pg_restore'), target, [...words, fileOf(subject)]),
        );
        return ms;
      },
      bound: null,
      limit: 'the archive gets each WAL segment',
    },
  ];
}

/**
 * Where pg_dump and pg_restore are that read a server of this version.
 *
 * @returns a directory; null: there are none
 */
export async function findDumpPrograms({ bin, major }: Installation): Promise<string | null> {
  const path = (process.env['PATH'] ?? '').split(delimiter);
  for (const directory of [bin, `/usr/lib/postgresql/${major}/bin`, ...path]) {
    try {
      await access(join(directory, 'pg_restore'));
      const version = await versionOf(join(directory, 'pg_dump'));
      if (version !== null && Number.parseInt(version, 10) >= major) return directory;
    } catch {
      // not in this directory
    }
  }
  return null;
}

/** Measures each work at every subject in turn. @returns a case for each subject, for each work */
export async function measureWorks(
  rounds: number,
  works: readonly Work[],
  subjects: readonly Subject[],
): Promise<Case[][]> {
  const cases = works.map(({ take }) => subjects.map((subject) => measured(() => take(subject))));
  await interleave(rounds, cases.flat());
  return cases;
}
