/** Two control planes with one metadata database, without services on their machine. */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { claimPorts, HOWDAH, install, makeHome, PORTS, type Installation } from './harness.ts';
import { callerOf } from './harness-caller.ts';
import { readCredentials } from './probe.ts';
import { until, untilExpected } from './until.ts';

const MAKE_FILES = fileURLToPath(new URL('../../../deploy/kubernetes/make-files', import.meta.url));

type Plane = {
  readonly home: string;
  readonly port: number;
  readonly output: string[];
  child: ChildProcess | null;
};

/** Has the metadata database. */
let below: Installation;
let databaseUrl: string;
let top: string;
let files: string;
const planes: Plane[] = [];

beforeAll(async () => {
  below = await install();
  const { endpoint, initial_password: password } = await below.create({
    name: 'metadata',
    service_type: 'POSTGRES',
  });
  // The owner of a database without further rights, as the role of a metadata database is.
  const role = `tsdbadmin:${password}`;
  databaseUrl = `postgres://${role}@127.0.0.1:${endpoint.port}/tsdb?sslmode=no-verify`;
  top = await makeHome();
  files = join(top, 'files');
  await promisify(execFile)(MAKE_FILES, ['127.0.0.1', files]);
});
afterAll(async () => {
  for (const plane of planes) await stop(plane, 'SIGKILL');
  await rm(top, { recursive: true });
  expect(await below?.destroy()).toEqual([]);
});

async function addPlane(): Promise<Plane> {
  const home = join(top, String(planes.length));
  await cp(files, home, { recursive: true });
  const plane: Plane = { home, port: await claimPorts(), output: [], child: null };
  planes.push(plane);
  return plane;
}

function start(plane: Plane): void {
  const child = spawn(process.execPath, [HOWDAH, 'up'], {
    env: {
      PATH: process.env['PATH'] ?? '',
      HOWDAH_HOME: plane.home,
      HOWDAH_PORT: String(plane.port),
      HOWDAH_PORT_RANGE: `${plane.port + 1}-${plane.port + PORTS - 1}`,
      HOWDAH_LOCAL_REGION: 'no',
      HOWDAH_SIMULATED_REGION: 'yes',
      HOWDAH_DATABASE_URL: databaseUrl,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => plane.output.push(text));
  plane.child = child;
}

async function stop({ child }: Plane, signal: NodeJS.Signals): Promise<number | null> {
  if (child === null) return null;
  if (child.exitCode === null && child.signalCode === null) {
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }
  return child.exitCode;
}

/** Waits until requests to a control plane are answered, by itself or by another one. */
const untilReady = (plane: Plane): Promise<void> => untilOk(plane, '/readyz');

async function untilOk({ child, port, output }: Plane, path: string): Promise<void> {
  const isRunning = (): boolean => child?.exitCode === null && child.signalCode === null;
  const isAnswered = async () => (await get(port, path)) === 200;
  const how = await until(
    `${path} is answered`,
    async () => ((await isAnswered()) && 'answered') || (!isRunning() && 'ended'),
  );
  if (how === 'ended') throw new Error(`a control plane ended: ${output.join('')}`);
}

const get = (port: number, path: string): Promise<number | null> =>
  fetch(`http://127.0.0.1:${port}${path}`).then(
    ({ status }) => status,
    () => null,
  );

async function callerAt({ home, port }: Plane) {
  const credentials = await readCredentials(home);
  if (credentials === null) throw new Error('make-files made no credentials');
  const { project_id: projectId, public_key, secret_key } = credentials;
  const apiUrl = `http://127.0.0.1:${port}/public/api/v1`;
  return callerOf({ apiUrl, projectId, key: `${public_key}:${secret_key}` });
}

const says = ({ output }: Plane, words: string): boolean => output.join('').includes(words);

test('a control plane without the files that all share is refused, and makes none', async () => {
  const plane = await addPlane();
  await rm(join(plane.home, 'secrets.key'));
  start(plane);
  expect(await once(plane.child ?? process, 'close')).toEqual([2, null]);
  expect(says(plane, 'secrets.key is missing')).toBe(true);
  await writeFile(join(plane.home, 'credentials.json'), '{}');
  await cp(join(files, 'secrets.key'), join(plane.home, 'secrets.key'));
  start(plane);
  expect(await once(plane.child ?? process, 'close')).toEqual([2, null]);
  expect(says(plane, 'lacks api_url, project_id')).toBe(true);
});

test('a second control plane passes requests on and finishes what a killed one began', async () => {
  const [first, second] = [await addPlane(), await addPlane()];
  start(first);
  await untilReady(first);
  start(second);
  await untilReady(second);
  const caller = await callerAt(second);
  const before = await caller.create({ name: 'before' });
  expect(before.region_code).toBe('simulated');
  const { body } = await caller.request('POST', `/services/${before.service_id}/stop`);
  expect(body).toMatchObject({ status: 'PAUSING' });
  await stop(first, 'SIGKILL');
  await untilReady(second);
  await caller.until(before.service_id, 'PAUSED');
  expect((await caller.create({ name: 'after' })).status).toBe('READY');
  expect(
    (await caller.operations(before.service_id)).map(({ kind, status }) => [kind, status]),
  ).toEqual([
    ['stop', 'succeeded'],
    ['create', 'succeeded'],
  ]);
  // A control plane that ends in order hands over as well.
  start(first);
  await untilReady(first);
  expect(await stop(second, 'SIGTERM')).toBe(0);
  await untilReady(first);
  expect((await (await callerAt(first)).get(before.service_id)).status).toBe('PAUSED');
  expect(await stop(first, 'SIGTERM')).toBe(0);
});

test(
  'a control plane that was silent for long ends before it writes, and another one works',
  { tags: 'slow' },
  async () => {
    const [silent, other] = [await addPlane(), await addPlane()];
    start(silent);
    await untilReady(silent);
    start(other);
    await untilReady(other);
    silent.child?.kill('SIGSTOP');
    await untilExpected('the other control plane serves', () =>
      expect(says(other, '"msg":"serving"')).toBe(true),
    );
    expect((await (await callerAt(other)).create({ name: 'taken over' })).status).toBe('READY');
    silent.child?.kill('SIGCONT');
    await once(silent.child ?? process, 'close');
    expect(silent.child?.exitCode).toBe(1);
    expect(says(silent, 'the lock of the metadata database is lost: ending')).toBe(true);
    expect(await stop(other, 'SIGTERM')).toBe(0);
  },
);

test('without the metadata database, a control plane waits and says so', async () => {
  const plane = await addPlane();
  const credentials = await readFile(join(plane.home, 'credentials.json'), 'utf8');
  const url = databaseUrl;
  databaseUrl = url.replace(/:\d+\/tsdb/, ':1/tsdb');
  start(plane);
  databaseUrl = url;
  await untilOk(plane, '/healthz');
  expect(await get(plane.port, '/readyz')).toBe(503);
  expect(await readFile(join(plane.home, 'credentials.json'), 'utf8')).toBe(credentials);
  expect(await stop(plane, 'SIGTERM')).toBe(0);
});
