/** The process that has the endpoints of services that may fall asleep. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Schemas } from '@howdah/client';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { until } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install();
});
afterEach(() => cloud.tidy());
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

const make = (name: string): Promise<Schemas['Service']> =>
  cloud.create({
    name,
    service_type: 'POSTGRES',
    cpu_millis: 'shared',
    memory_gbs: 'shared',
    auto_suspend_seconds: 5,
  });

const hasServer = (id: string): boolean =>
  existsSync(join(cloud.home, 'data', 'services', id, 'pid'));

const isAsleep = async (id: string): Promise<boolean> =>
  (await cloud.get(id)).suspended === true && !hasServer(id);

const PLAIN = Buffer.from('\0\0\0\x17\0\x03\0\0user\0tsdbadmin\0\0', 'latin1');

/** Whether an endpoint answers; a client without TLS wakes nobody. */
async function answers({ endpoint }: Schemas['Service']): Promise<boolean> {
  const socket = connect(endpoint.port, endpoint.host);
  let said = '';
  socket.on('data', (chunk) => (said += String(chunk))).on('error', () => undefined);
  socket.end(PLAIN);
  await once(socket, 'close');
  return said.includes('TLS is required');
}

/** All activators of the installation. */
async function findActivators(): Promise<number[]> {
  const directory = join(cloud.home, 'data', 'activator');
  const pids = (await readdir('/proc')).filter((entry) => /^[0-9]+$/.test(entry));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      const at = await readlink(`/proc/${pid}/cwd`).catch(() => '');
      return command.includes('activator.js') && at === directory ? [Number(pid)] : [];
    }),
  );
  return found.flat();
}

test('services that lose their activator have one again, which the next plane uses', async () => {
  const made = [await make('first'), await make('second'), await make('third')];
  const ids = made.map(({ service_id: id }) => id);
  await until('all sleep', async () => {
    await cloud.round('suspensions');
    return (await Promise.all(ids.map(isAsleep))).every(Boolean);
  });
  const [killed, ...more] = await findActivators();
  expect(more).toEqual([]);
  process.kill(killed ?? 0, 'SIGKILL');
  await until('all endpoints are open', async () =>
    (await Promise.all(made.map(answers))).every(Boolean),
  );
  const after = await findActivators();
  expect(after).toHaveLength(1);
  expect(after).not.toContain(killed);
  await cloud.stop('SIGKILL');
  await cloud.up();
  await cloud.round('deaths', 2);
  for (const id of ids) {
    expect(await cloud.get(id)).toMatchObject({ status: 'READY', suspended: true });
    expect(hasServer(id)).toBe(false);
  }
  expect(await findActivators()).toEqual(after);
});
