/** Kept server logs in the real metadata database: their limits, and when they go. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { sql } from 'kysely';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { openMetadata } from './metadata.ts';
import { backupControl, createKeptLogs, KEPT_BYTES, readControl } from './probe.ts';

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
let id = '';
let other = '';
beforeAll(async () => {
  cloud = await install({ HOWDAH_SIMULATED_REGION: 'yes' });
  metadata = await openMetadata(cloud.home);
  const create = async (name: string): Promise<string> => {
    const body = { name, region_code: 'simulated', service_type: 'POSTGRES' };
    const answer = await cloud.request('POST', '/services', body);
    return String(Reflect.get(Object(answer.body), 'service_id'));
  };
  id = await create('logs');
  other = await create('other');
});
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});
beforeEach(() => sql`delete from kept_logs`.execute(metadata.db));

const logs = (region = 'simulated') => createKeptLogs(metadata, region);
const stamp = (n: number): string => `17${String(n).padStart(17, '0')}`;
/** A part with the lines `n` to `n + 9`. */
const part = (n: number, lines = Buffer.from([0, 255, 39, n % 256])) => ({
  pod: 'aaaaaaaaaaaa',
  from: stamp(n),
  until: stamp(n + 9),
  lines,
});
const counted = async (service = id) => {
  const { rows } = await sql<{ parts: number; bytes: number }>`
    select count(*)::integer as parts, coalesce(sum(length(lines)), 0)::integer as bytes
    from kept_logs where service_id = ${service}`.execute(metadata.db);
  return rows[0] ?? { parts: 0, bytes: 0 };
};

test('parts are read as they were added, newest first, by server and region', async () => {
  const kept = logs();
  for (const n of [0, 10, 20]) expect(await kept.add(id, 0, part(n))).toBe(true);
  expect(await kept.add(id, 1, part(0))).toBe(true);
  expect(await logs('local').add(id, 0, part(0))).toBe(true);
  const listed = await kept.list(id, 0);
  expect(listed.map(({ from, until, pod }) => ({ from, until, pod }))).toEqual(
    [20, 10, 0].map((n) => ({ from: stamp(n), until: stamp(n + 9), pod: 'aaaaaaaaaaaa' })),
  );
  const read = await kept.read([...listed.map((found) => found.id), '999999999']);
  expect(listed.map((found) => read.get(found.id))).toEqual([20, 10, 0].map((n) => part(n).lines));
  expect(await kept.read([])).toEqual(new Map());
});

test('lines that are kept are not added again, nor are those of no service', async () => {
  const kept = logs();
  expect(await kept.add(id, 0, part(10))).toBe(true);
  for (const n of [0, 5, 10, 19]) expect(await kept.add(id, 0, part(n))).toBe(false);
  expect(await kept.add(id, 0, { ...part(5), pod: 'bbbbbbbbbbbb' })).toBe(true);
  expect(await kept.add(id, 0, part(20))).toBe(true);
  expect(await kept.add('nosuchserv', 0, part(0))).toBe(false);
  expect((await counted()).parts).toBe(3);
});

test('two control planes that add the same lines at once leave them once', async () => {
  const kept = logs();
  for (let n = 0; n < 200; n += 10) {
    const added = await Promise.all([kept.add(id, 0, part(n)), kept.add(id, 0, part(n))]);
    expect(added.toSorted()).toEqual([false, true]);
  }
  expect((await counted()).parts).toBe(20);
});

test('a service keeps a megabyte, the newest, whatever another one writes', async () => {
  const kept = logs();
  await kept.add(other, 0, part(0));
  for (let n = 0; n < 12; n += 1) await kept.add(id, n % 2, part(10 * n, randomBytes(200_000)));
  const large = await counted();
  expect(large.bytes).toBeLessThanOrEqual(KEPT_BYTES);
  expect(large.parts).toBe(4);
  expect((await kept.list(id, 1))[0]?.from).toBe(stamp(110));
  // The largest part that there is stays.
  await kept.add(id, 0, part(200, randomBytes(900_000)));
  expect(await counted()).toEqual({ parts: 1, bytes: 900_000 });
  expect(await counted(other)).toEqual({ parts: 1, bytes: 4 });
});

test('a service with short parts has no more rows than their cost allows', async () => {
  await sql`
    insert into kept_logs (service_id, region_code, server, pod, from_ns, until_ns, lines)
    select ${id}, 'simulated', 0, 'p', i, i, 'line' from generate_series(1, 5000) i`.execute(
    metadata.db,
  );
  await logs().add(id, 0, part(0));
  const { parts } = await counted();
  expect(parts).toBeLessThanOrEqual(2500);
  expect(parts).toBeGreaterThan(2000);
});

test('no backup of the control plane has server logs', async () => {
  const secret = 'alter role app password of a tenant';
  await logs().add(id, 0, part(0, Buffer.from(secret)));
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  try {
    const path = join(directory, 'control');
    await backupControl(cloud.home, path);
    for (const backup of [await readFile(path), await readControl(cloud.home, null)]) {
      const text = gunzipSync(backup).toString('utf8');
      // Not shown by a failure: it has keys.
      const has = (part: string): boolean => text.includes(part);
      expect(has('"table":"services"')).toBe(true);
      expect(has('"table":"kept_logs"')).toBe(false);
      expect(has(Buffer.from(secret).toString('hex'))).toBe(false);
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});

test('the log goes with its service', async () => {
  await logs().add(id, 0, part(0));
  await logs().add(other, 0, part(0));
  await metadata.db
    .transaction()
    .execute(async (tx) => {
      await sql`delete from services where id = ${other}`.execute(tx);
      const { rows } = await sql<{ id: string }>`
        select service_id as id from kept_logs`.execute(tx);
      expect(rows).toEqual([{ id }]);
      throw new Error('the engine would miss it');
    })
    .catch((error: unknown) => expect(String(error)).toContain('the engine would miss it'));
});
