/** `howdah lease take`: a command runs with copies of a service, which are gone after it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { HOWDAH, connectTo, type Installation } from '../../server/test/harness.ts';
import { share } from '../../server/test/shared.ts';
import { until, untilExpected } from '../../server/test/until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await share();
  const made = await cloud.create({ name: 'parent', service_type: 'POSTGRES' });
  const client = await connectTo(cloud, made, made.initial_password);
  await client.query('create table items as select generate_series(1, 100) as id');
  await client.end();
});
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

/** A file that is no program. */
const SOME_FILE = fileURLToPath(import.meta.url);

const leases = async (): Promise<unknown[]> => {
  const { body } = await cloud.request('GET', '/leases');
  return Array.isArray(body) ? body : [];
};

const none = () =>
  untilExpected('no lease is left', async () => expect(await leases()).toEqual([]));

/** Begins a command that takes leases and prints a line. No terminal sends it signals. */
async function begin(...words: string[]): Promise<{ child: ChildProcess; line: string }> {
  const child = spawn(process.execPath, [HOWDAH, 'lease', 'take', ...words], {
    env: cloud.env,
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  let line = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (line += text));
  await until('the command has printed a line', () => line.includes('\n'));
  return { child, line };
}

test('a command finds its copies in the environment, and they are gone when it fails', async () => {
  const script =
    'for url in "$DATABASE_URL_1" "$DATABASE_URL_2"; do ' +
    'psql "$url" -Atqc "delete from items where id > 90; select count(*) from items"; done; exit 3';
  const words = ['lease', 'take', 'parent', '--count', '2', '--', 'sh', '-c', script];
  const { code, stdout, stderr } = await cloud.cli(...words);
  expect({ code, stdout }, stderr).toEqual({ code: 3, stdout: '90\n90\n' });
  await none();
});

test.each([
  ['SIGTERM', 143],
  ['SIGINT', 130],
] as const)('leases are extended while the command runs, and returned at a %s', async (...of) => {
  const [signal, code] = of;
  const words = ['parent', '--ttl', '15s', '--', 'sh', '-c', 'echo "$$"; exec sleep 1000'];
  const { child, line } = await begin(...words);
  const [first] = await leases();
  const endOf = (lease: unknown) => Date.parse(String(Object(lease).expires_at));
  await until('it has been extended', async () => endOf((await leases())[0]) > endOf(first));
  child.kill(signal);
  await once(child, 'exit');
  expect(child.exitCode).toBe(code);
  expect(() => process.kill(Number(line), 0)).toThrow('ESRCH');
  await none();
});

/** Counts the signals of the terminal, until it has another one by its runner. */
const COUNTER = `
  let count = 0;
  process.on('SIGINT', () => console.log('interrupt ' + ++count));
  process.on('SIGHUP', () => console.log('hangup'));
  process.on('SIGTERM', () => console.log('interrupts: ' + count) ?? process.exit(0));
  setInterval(() => undefined, 1e6);
  console.log('runner ' + process.ppid + '.');`;

test('Ctrl-C in a terminal reaches the command once', async () => {
  const runs = `"$NODE" "$HOWDAH" lease take parent -- "$NODE" -e "$COUNTER" < ${SOME_FILE}`;
  // The shell goes on: its end would be that of the terminal.
  const words = ['--quiet', '--flush', '--command', `trap : INT; ${runs}; echo "code $?"`];
  const child = spawn('script', [...words, '/dev/null'], {
    env: { ...cloud.env, TERM: 'xterm', NODE: process.execPath, HOWDAH, COUNTER },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  const shown = (pattern: RegExp) => until(String(pattern), () => pattern.exec(text));
  const runner = Number((await shown(/runner (\d+)\./))[1]);
  // Two signals at the same time would be one.
  process.kill(runner, 'SIGSTOP');
  child.stdin.write('\u0003');
  await shown(/interrupt 1/);
  process.kill(runner, 'SIGCONT');
  // The runner has had the signal of the terminal when it forwards others.
  process.kill(runner, 'SIGHUP');
  await shown(/hangup/);
  process.kill(runner, 'SIGTERM');
  await shown(/interrupts: 1\b[^]*code 0/);
  await closed;
  await none();
});

test.each(['no-such-xyz', SOME_FILE, `${SOME_FILE}/x`])(
  'leases are returned if the command cannot be run: %s',
  async (program) => {
    const { code, stderr } = await cloud.cli('lease', 'take', 'parent', '--', program);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining(`${program} was not run: spawn`),
    });
    await none();
  },
);

test('leases of a killed runner end by themselves', async () => {
  const { child, line } = await begin(
    'parent',
    '--ttl',
    '15s',
    '--',
    'sh',
    '-c',
    'echo "$$"; sleep 20',
  );
  expect(await leases()).toHaveLength(1);
  child.kill('SIGKILL');
  await none();
  await until('its command has ended', () => {
    try {
      return !process.kill(Number(line), 0);
    } catch {
      return true;
    }
  });
});

test('a lease is shown as variables, extended and returned by its id', async () => {
  const { code, stdout, stderr } = await cloud.cli('lease', 'take', 'parent', '-o', 'env');
  expect(code, stderr).toBe(0);
  expect(stdout).toMatch(/^PGHOST=.*^PGPASSWORD=.*^DATABASE_URL='?postgres:\/\/tsdbadmin:/ms);
  const id = String(Object((await leases())[0]).id);
  expect((await cloud.cli('lease', 'extend', '20m', id)).stdout).toContain(id);
  expect((await cloud.cli('lease', 'return', id)).stderr).toContain(`returned: ${id}`);
  await none();
  const again = await cloud.cli('lease', 'extend', '20m', id);
  expect([again.code, again.stderr]).toEqual([3, expect.stringContaining('have ended')]);
});
