/**
 * The load of `npm run soak:hostile`, in a process of its own, whose times are not those of the
 * attackers: transactions like pgbench's on each service, and GETs of the API. When its parent asks
 * for `times`, it answers the p50 and p99 of each since the last question, in milliseconds, and the
 * errors.
 */
import { Client } from 'pg';
import { setTimeout as sleep } from 'node:timers/promises';

const ACCOUNTS = 10_000;
/**
 * @type {{ services: { name: string, host: string, port: number, password: string }[], ca: string,
 *   url: string, key: string }}
 */
const { services, ca, url, key } = JSON.parse(process.env.LOAD ?? '{}');
/** @type {Map<string, { times: number[], failed: number, errors: Map<string, number> }>} */
const seen = new Map();
const of = (name) => {
  const found = seen.get(name) ?? { times: [], failed: 0, errors: new Map() };
  seen.set(name, found);
  return found;
};
let over = false;

async function measured(name, work) {
  const begun = performance.now();
  try {
    await work();
    of(name).times.push(performance.now() - begun);
  } catch (error) {
    const { errors } = of(name);
    const message = error instanceof Error ? error.message : String(error);
    of(name).failed++;
    errors.set(message, (errors.get(message) ?? 0) + 1);
    await sleep(100);
  }
}

/** A new session of tsdbadmin. */
async function connect({ host, port, password }) {
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
  return client;
}

async function transactions(service) {
  const client = await connect(service);
  await client.query(
    'create table if not exists accounts as select id, 0 as balance ' +
      `from generate_series(1, ${ACCOUNTS}) id`,
  );
  await client.query('create unique index if not exists accounts_id on accounts (id)');
  /** @type {Client | null} */
  let idle = client;
  while (!over) {
    const id = 1 + Math.floor(Math.random() * ACCOUNTS);
    await measured(service.name, async () => {
      // As the pool of an application: the session of a failed transaction is not used again.
      const session = idle ?? (await connect(service));
      idle = null;
      try {
        await session.query('begin');
        await session.query('update accounts set balance = balance + 1 where id = $1', [id]);
        await session.query('select balance from accounts where id = $1', [id]);
        await session.query('commit');
        idle = session;
      } finally {
        if (idle === null) await session.end().catch(() => undefined);
      }
    });
    await sleep(5);
  }
  await idle?.end();
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
  const told = [...seen].map(([name, { times, failed, errors }]) => {
    const sorted = times.toSorted((a, b) => a - b);
    const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
    return {
      name,
      count: sorted.length,
      failed,
      errors: Object.fromEntries(errors),
      p50: at(0.5),
      p99: at(0.99),
    };
  });
  seen.clear();
  process.send?.(told);
});
process.on('disconnect', () => process.exit(1));
await Promise.all([calls(), ...services.map(transactions)]);
process.disconnect();
