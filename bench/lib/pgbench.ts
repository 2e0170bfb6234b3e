/**
 * pgbench as a client on the network runs it: over TLS with a verified certificate, and with SCRAM.
 */
import { join } from 'node:path';
import { LOOPBACK, type Cloud } from './cloud.ts';
import { run } from './run.ts';

/** A database that programs connect to as tsdbadmin. */
export type Target = { port: number; database: string; password: string; caFile: string };

/** The file of the authority that signs the certificates of services and of servers by hand. */
export const caFileOf = ({ home }: Pick<Cloud, 'home'>): string => join(home, 'ca', 'ca.pem');

/** pgbench -i at a large scale takes minutes on a slow disk. */
const DEADLINE_MS = 1_800_000;

/** Runs a program of PostgreSQL that connects to a database by the variables of libpq. */
export async function runClient(
  program: string,
  { port, database, password, caFile }: Target,
  options: readonly string[],
): Promise<string> {
  const env = {
    PATH: process.env['PATH'] ?? '',
    PGHOST: LOOPBACK,
    PGPORT: String(port),
    PGUSER: 'tsdbadmin',
    PGDATABASE: database,
    PGPASSWORD: password,
    PGSSLMODE: 'verify-full',
    PGSSLROOTCERT: caFile,
  };
  return run(program, options, { env, deadlineMs: DEADLINE_MS });
}

export const pgbench = (target: Target, options: readonly string[]): Promise<string> =>
  runClient('pgbench', target, options);

export const PGBENCH_MISSING = 'pgbench is missing: apt-get install postgresql-contrib';

/** Transactions a second, by the output of pgbench. */
export function rateOf(output: string): number {
  const rate = /^tps = ([\d.]+)/m.exec(output)?.[1];
  if (rate === undefined) throw new Error(`pgbench said no rate: ${output}`);
  return Number(rate);
}
