/**
 * The load of `npm run soak:hostile`, in a process of its own, whose times are not those of the attackers: transactions like pgbench's on each service, and
 * GETs of the API. Asked for `times` by its parent it answers the p50 and p99 of each since it was asked last, in milliseconds.
 */
import { Client } from 'pg';
import { setTimeout as sleep } from 'node:timers/promises';

const ACCOUNTS = 10_000;
/** @type {{ services: { name: string, host: string, port: number, password: string }[], ca: string, url: string, key: string }} */
const { services, ca, url, key } = JSON.parse(process.env.LOAD ?? '{}');
/** @type {Map<string, { times: number[], failed: number }>} */
const seen = new Map();
const of = (name) => {
  const found = seen.get(name) ?? { times: [], failed: 0 };
  seen.set(name, found);
  return found;
};
let over = false;

async function measured(name, work) {
  const begun = performance.now();
  try {
    await work();
    of(name).times.push(performance.now() - begun);
  } catch {
    of(name).failed++;
    await sleep(100);
  }
}

async function transactions({ name, host, port, password }) {
  const client = new Client({
    host,
    port,
    user: 'tsdbadmin',
    database: 'tsdb',
    password,
    ssl: { ca },
  });
  client.on('error', () => undefined);
  await client.connect();
  await client.query(
    `create table if not exists accounts as select id, 0 as balance from generate_series(1, ${ACCOUNTS}) id`,
  );
  await client.query('create unique index if not exists accounts_id on accounts (id)');
  while (!over) {
    const id = 1 + Math.floor(Math.random() * ACCOUNTS);
    await measured(name, async () => {
      await client.query('begin');
      await client.query('update accounts set balance = balance + 1 where id = $1', [id]);
      await client.query('select balance from accounts where id = $1', [id]);
      await client.query('commit');
    });
    await sleep(5);
  }
  await client.end();
}

async function calls() {
  while (!over) {
    await measured('API', async () => {
      const answer = await fetch(url, { headers: { Authorization: `Bearer ${key}` } });
      await answer.arrayBuffer();
      if (answer.status !== 200) throw new Error(String(answer.status));
    });
    await sleep(20);
  }
}

process.on('message', (asked) => {
  if (asked === 'end') over = true;
  if (asked !== 'times') return;
  const told = [...seen].map(([name, { times, failed }]) => {
    const sorted = times.toSorted((a, b) => a - b);
    const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
    return { name, count: sorted.length, failed, p50: at(0.5), p99: at(0.99) };
  });
  seen.clear();
  process.send?.(told);
});
process.on('disconnect', () => process.exit(1));
await Promise.all([calls(), ...services.map(transactions)]);
process.disconnect();
