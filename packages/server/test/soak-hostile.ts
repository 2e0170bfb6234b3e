/**
 * `npm run soak:hostile [-- --minutes N --seed N --image-gb N --attack NAME…]`: one tenant attacks
 * with all attacks, or only with the named ones, while two others work, on a disk of its own.
 * Prints what the others see, and ends with 1 when a bound is exceeded. As root, since it mounts
 * that disk; `--minutes 1` is a smoke test.
 */
import { execFile, fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, rm, statfs, truncate, writeFile } from 'node:fs/promises';
import { randomInt } from 'node:crypto';
import { setPriority } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import { messageOf } from '@howdah/contract/thrown';
import { sql } from 'kysely';
import { randomFrom } from './crash-points.ts';
import { install, makeHome, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { insertKey, insertProject, newId, sha256 } from './probe.ts';
import { ATTACKS, type Target } from './soak-attacks.ts';
import { until } from './until.ts';

const run = promisify(execFile);
const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '60' },
    seed: { type: 'string' },
    'image-gb': { type: 'string', default: '8' },
    attack: { type: 'string', multiple: true, default: Object.keys(ATTACKS) },
  },
});
const unknown = values.attack.filter((name) => !(name in ATTACKS));
if (unknown.length > 0)
  throw new Error(
    `no attack is named ${unknown.join(', ')}; the attacks are: ${Object.keys(ATTACKS).join(', ')}`,
  );
const minutes = Number(values.minutes);
const seed = Number(values.seed ?? randomInt(2 ** 31));

/** p99 of a neighbour under attack, divided by its p99 before; growth of the control plane. */
const P99_RATIO = 1.5;
const GROWTH_MB = 200;
/**
 * Rows that attacks may leave. In a day a key may make more: each bound is for the time of the
 * soak.
 */
const MOST_ROWS: Record<string, number> = {
  console_tokens: 80,
  kept_answers: 0,
  services: 3,
  audit_log: 3000 + 200 * minutes,
};
const ATTACKERS = 6;
const ATTACKERS_NICENESS = 19;

type Times = {
  name: string;
  count: number;
  failed: number;
  /** How often each error came. */
  errors: Record<string, number>;
  p50: number;
  p99: number;
};
type Tenant = { projectId: string; admin: string; service: Service & { initial_password: string } };

let stopping = false;
process.once('SIGINT', () => {
  stopping = true;
});

/** Work that is ended in the reverse order, whatever fails. */
const endings: (() => Promise<unknown>)[] = [];
async function endAll(): Promise<string[]> {
  const problems: string[] = [];
  for (const end of endings.toReversed())
    await end().catch((error: unknown) => problems.push(messageOf(error)));
  return problems;
}

/** A file system in a sparse file: what fills it fills nothing else. */
async function mountDisk(): Promise<string> {
  const directory = await makeHome();
  const [image, disk] = [join(directory, 'disk.img'), join(directory, 'disk')];
  endings.push(() => rm(directory, { recursive: true, force: true }));
  await writeFile(image, '');
  await truncate(image, Number(values['image-gb']) * 2 ** 30);
  await mkdir(disk);
  await run('mkfs.ext4', ['-q', image]);
  await run('mount', ['-o', 'loop', image, disk]);
  endings.push(() => run('umount', [disk]));
  return disk;
}

type Records = Awaited<ReturnType<typeof openMetadata>>;

async function newKey(
  { db }: Records,
  projectId: string,
  role: 'admin' | 'developer' | 'viewer',
): Promise<string> {
  const publicKey = `HD${newId()}`;
  await insertKey(db, { publicKey, secretHash: sha256('secret'), projectId, name: 'soak', role });
  return `${publicKey}:secret`;
}

/** A project with one service. */
async function newTenant(cloud: Installation, metadata: Records, name: string): Promise<Tenant> {
  const projectId = newId();
  await insertProject(metadata.db, { id: projectId, name });
  const admin = await newKey(metadata, projectId, 'admin');
  const headers = { Authorization: `Bearer ${admin}`, 'Content-Type': 'application/json' };
  const at = `${cloud.apiUrl}/projects/${projectId}/services`;
  const made = await fetch(at, {
    method: 'POST',
    headers,
    body: JSON.stringify({ name, service_type: 'POSTGRES' }),
  });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a schema is checked elsewhere
  const service = (await made.json()) as Tenant['service'];
  if (made.status !== 202)
    throw new Error(`create answered ${made.status}: ${JSON.stringify(service)}`);
  const read = async () => (await fetch(`${at}/${service.service_id}`, { headers })).text();
  await until(`${name} is ready`, async () => /"status":"READY"/.test(await read()));
  return { projectId, admin, service };
}

async function startLoad(cloud: Installation, tenants: readonly Tenant[]): Promise<ChildProcess> {
  const [first] = tenants;
  const load = {
    services: tenants.map(({ service }) => ({
      name: `transactions of ${service.name}`,
      host: service.endpoint.host,
      port: service.endpoint.port,
      password: service.initial_password,
    })),
    ca: await cloud.caPem(),
    url: `${cloud.apiUrl}/projects/${first?.projectId}/services/${first?.service.service_id}`,
    key: first?.admin,
  };
  const child = fork(join(import.meta.dirname, 'soak-hostile-load.mjs'), {
    env: { ...process.env, LOAD: JSON.stringify(load) },
  });
  endings.push(async () => {
    if (child.exitCode === null && child.connected) child.send('end');
    const late = setTimeout(() => child.kill('SIGKILL'), 10_000);
    if (child.exitCode === null) await once(child, 'exit');
    clearTimeout(late);
  });
  return child;
}

async function timesOf(load: ChildProcess): Promise<Times[]> {
  load.send('times');
  const [times]: Times[][] = await once(load, 'message');
  return times ?? [];
}

const memoryMb = async (cloud: Installation): Promise<number> =>
  Number(
    /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${cloud.planePid()}/status`, 'utf8'))?.[1],
  ) / 1024;

/**
 * The longest that the event loop was held up, in milliseconds, as the control plane says; null: it
 * does not.
 */
async function loopDelayMs(cloud: Installation): Promise<number | null> {
  const text = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
  const found = /^nodejs_eventloop_lag_max_seconds ([0-9.e+-]+)$/m.exec(text)?.[1];
  return found === undefined ? null : Number(found) * 1000;
}

/** Attacks until a moment. @returns how often each was made, and how often it was interrupted */
async function attackUntil(
  endMs: number,
  target: Target,
  random: () => number,
): Promise<Map<string, { made: number; failed: number }>> {
  const made = new Map<string, { made: number; failed: number }>();
  const names = values.attack;
  const attacker = async (): Promise<void> => {
    while (Date.now() < endMs && !stopping) {
      const name = names[Math.floor(random() * names.length)] ?? '';
      const tally = made.get(name) ?? { made: 0, failed: 0 };
      made.set(name, tally);
      tally.made++;
      await ATTACKS[name]?.(target).catch(() => tally.failed++);
      await sleep(50);
    }
  };
  await Promise.all(Array.from({ length: ATTACKERS }, attacker));
  return made;
}

async function rowsOf({ db }: Records): Promise<[string, number][]> {
  const { rows } = await sql<{
    name: string;
  }>`select tablename as name from pg_tables where schemaname = 'public' order by 1`.execute(db);
  const counts: [string, number][] = [];
  for (const { name } of rows) {
    const { rows: counted } = await sql<{
      count: number;
    }>`select count(*)::int as count from ${sql.table(name)}`.execute(db);
    counts.push([name, counted[0]?.count ?? 0]);
  }
  return counts;
}

const problems: string[] = [];
const lines: [string, string][] = [];
function report(what: string, figure: string, exceeded = false): void {
  lines.push([what, exceeded ? `${figure}  EXCEEDED` : figure]);
  if (exceeded) problems.push(`${what}: ${figure}`);
}

async function soak(): Promise<void> {
  const disk = await mountDisk();
  const cloud = await install({ HOWDAH_HOME: join(disk, 'home') });
  endings.push(async () => {
    const found = await cloud.destroy();
    report(
      'integrity check',
      found.length === 0 ? 'nothing wrong' : found.join('; '),
      found.length > 0,
    );
  });
  const metadata = await openMetadata(cloud.home);
  endings.push(() => metadata.close());
  const attacker = await newTenant(cloud, metadata, 'attacker');
  const neighbours = [
    await newTenant(cloud, metadata, 'neighbour 1'),
    await newTenant(cloud, metadata, 'neighbour 2'),
  ];
  const { projectId, service } = attacker;
  const keys = {
    viewer: await newKey(metadata, projectId, 'viewer'),
    developer: await newKey(metadata, projectId, 'developer'),
  };

  const load = await startLoad(cloud, neighbours);
  await sleep(3000);
  await timesOf(load);
  await sleep(Math.max(15_000, minutes * 6000));
  const undisturbed = await timesOf(load);
  const [memoryBefore, { bavail: freeBefore, bsize }] = [await memoryMb(cloud), await statfs(disk)];

  // Attackers have machines of their own: they get what the others leave of the processors.
  setPriority(ATTACKERS_NICENESS);
  const made = await attackUntil(
    Date.now() + minutes * 60_000,
    { cloud, projectId, service, keys },
    randomFrom(seed),
  );
  const attacked = await timesOf(load);
  const [memoryAfter, { bavail: freeAfter }, delayMs] = [
    await memoryMb(cloud),
    await statfs(disk),
    await loopDelayMs(cloud),
  ];
  // Counts of the audit log are written every five seconds.
  await sleep(6000);
  const rows = await rowsOf(metadata);

  for (const [name, { made: count, failed }] of [...made].toSorted(([a], [b]) =>
    a.localeCompare(b),
  ))
    report(`attack: ${name}`, `${count} times, ${failed} interrupted`);
  for (const { name, p50, p99, count, failed, errors } of attacked) {
    const before = undisturbed.find((one) => one.name === name)?.p99 ?? 0;
    const figure =
      `p50 ${p50.toFixed(1)} ms, p99 ${before.toFixed(1)} → ${p99.toFixed(1)} ms ` +
      `(${(p99 / before).toFixed(2)} times), ${failed} of ${count + failed} failed`;
    report(name, figure, failed > 0 || !(p99 <= P99_RATIO * before));
    for (const [message, times] of Object.entries(errors)) report(`  ${message}`, `${times} times`);
  }
  const grown = memoryAfter - memoryBefore;
  report(
    'memory of the control plane',
    `${memoryBefore.toFixed(0)} → ${memoryAfter.toFixed(0)} MB`,
    grown > GROWTH_MB,
  );
  report(
    'event loop delay, longest',
    delayMs === null ? 'not reported by /metrics' : `${delayMs.toFixed(0)} ms`,
  );
  report(
    'free disk',
    `${((freeBefore * bsize) / 1e6).toFixed(0)} → ${((freeAfter * bsize) / 1e6).toFixed(0)} MB`,
    freeAfter === 0,
  );
  for (const [table, count] of rows)
    report(`rows of ${table}`, String(count), count > (MOST_ROWS[table] ?? Infinity));
}

await soak().catch((error: unknown) =>
  problems.push(error instanceof Error ? (error.stack ?? error.message) : String(error)),
);
problems.push(...(await endAll()));
process.stdout.write(`soak:hostile, ${minutes} minutes, seed ${seed}\n`);
const width = Math.max(...lines.map(([what]) => what.length));
for (const [what, figure] of lines) process.stdout.write(`  ${what.padEnd(width)}  ${figure}\n`);
for (const problem of problems) process.stdout.write(`bound exceeded: ${problem}\n`);
process.exitCode = problems.length === 0 ? 0 : 1;
