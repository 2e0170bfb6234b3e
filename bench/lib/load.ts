/**
 * Transactions on a source while it is forked: pgbench's TPC-B at a steady rate over the Unix
 * socket, with the time of each transaction.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Client } from 'pg';
import { atEnd } from './cleanup.ts';
import { run } from './run.ts';
import type { Source } from './source.ts';

const SCALE = 50;
export const RATE = 400;
const CLIENTS = 4;

export type Load = {
  /**
   * Ends the load.
   *
   * @returns every transaction, and the number of failed ones
   */
  end: () => Promise<{ transactions: Transaction[]; failed: number }>;
};

/** When a transaction ended, in ms since the epoch, and its delay since it was due, in ms. */
export type Transaction = { endedMs: number; tookMs: number };

/** pgbench's tables in the users' database. */
export async function initialise({ paths, service }: Source): Promise<void> {
  await run(
    'pgbench',
    [
      '-h',
      paths.socket,
      '-p',
      String(service.port),
      '-U',
      'howdah',
      '-i',
      '-q',
      '-s',
      String(SCALE),
      'tsdb',
    ],
    {
      deadlineMs: 600_000,
    },
  );
}

/**
 * Starts the load.
 *
 * @param temp the directory of its log
 * @param rate transactions a second; null: as many as possible
 */
export async function startLoad(
  { paths, service }: Source,
  temp: string,
  rate: number | null,
): Promise<Load> {
  const directory = await mkdtemp(join(temp, 'load-'));
  const args = [
    '-h',
    paths.socket,
    '-p',
    String(service.port),
    '-U',
    'howdah',
    '-n',
    '-c',
    String(CLIENTS),
  ];
  const child = spawn(
    'pgbench',
    [...args, ...(rate === null ? [] : ['-R', String(rate)]), '-T', '3600', '-l', 'tsdb'],
    {
      cwd: directory,
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  );
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  const ended = once(child, 'exit');
  const forget = atEnd(async () => {
    child.kill('SIGINT');
    await ended;
    await rm(directory, { recursive: true, force: true });
  });
  return {
    end: async () => {
      // pgbench prints nothing unless a transaction fails; then its client ends,
      // and the others go on.
      const failed = (said.match(/error:/g) ?? []).length;
      if (failed > 0) process.stderr.write(said);
      child.kill('SIGINT');
      await ended;
      const transactions = await readTransactions(directory);
      await forget();
      return { transactions, failed };
    },
  };
}

/** Lines of pgbench's log: client, number, µs since it was due, script, second, µs, lag. */
async function readTransactions(directory: string): Promise<Transaction[]> {
  const [file] = await readdir(directory);
  if (file === undefined) throw new Error('pgbench kept no log');
  const lines = (await readFile(join(directory, file), 'utf8')).split('\n').slice(0, -1);
  return lines.map((line) => {
    const fields = line.split(' ').map(Number);
    return {
      endedMs: (fields[4] ?? 0) * 1000 + (fields[5] ?? 0) / 1000,
      tookMs: (fields[2] ?? 0) / 1000,
    };
  });
}

/**
 * Faults of a copy of the source in use, none if it is sound: sums of TPC-B that differ, tables and
 * indexes that amcheck finds damaged.
 */
export async function inconsistencies(client: Client): Promise<string[]> {
  const { rows } = await client.query<{ a: string; b: string; t: string; h: string }>(
    `select (select sum(abalance) from pgbench_accounts)::text as a,
            (select sum(bbalance) from pgbench_branches)::text as b,
            (select sum(tbalance) from pgbench_tellers)::text as t,
            (select coalesce(sum(delta), 0) from pgbench_history)::text as h`,
  );
  const found = rows
    .filter(({ a, b, t, h }) => new Set([a, b, t, h]).size > 1)
    .map((sums) => `sums of TPC-B: ${JSON.stringify(sums)}`);
  await client.query('create extension if not exists amcheck');
  const heap = await client.query<{ relation: string; msg: string }>(
    'select c.relname as relation, v.msg from pg_class c, verify_heapam(c.oid) v ' +
      "where c.relkind in ('r', 't', 'm') and c.relpersistence = 'p'",
  );
  found.push(...heap.rows.map(({ relation, msg }) => `${relation}: ${msg}`));
  // amcheck throws what it finds.
  await client
    .query(
      `select bt_index_check(c.oid, true) from pg_class c join pg_am a on a.oid = c.relam
         join pg_index i on i.indexrelid = c.oid
       where c.relkind = 'i' and a.amname = 'btree' and c.relpersistence = 'p' and i.indisvalid`,
    )
    .catch((error: unknown) => found.push(String(error)));
  return found;
}
