/** The command line as people and scripts use it: what it says, and its exit codes. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo } from './harness.ts';
import { cloud, greeting, howdah, withHome, setUp, tearDown } from './cli-cloud.ts';
import { findProgram } from './probe.ts';
import { untilExpected } from './until.ts';

beforeAll(setUp);
afterAll(tearDown);

test('up on a running installation says so and leaves it alone', async () => {
  const pid = cloud.planePid();
  const again = await cloud.cli('up');
  expect(again).toMatchObject({ code: 0, stderr: '' });
  expect(again.stdout).toContain(`up already: ${cloud.apiUrl} (process ${pid})`);
  expect(await (await fetch(`http://127.0.0.1:${cloud.port}/readyz`)).json()).toEqual({
    status: 'ready',
  });
});

test('up said where everything is; the credentials are closed to others', async () => {
  const said = await greeting();
  for (const part of [
    cloud.apiUrl,
    `${cloud.apiUrl}/reference`,
    join(cloud.home, 'credentials.json'),
    'control.log',
  ])
    expect(said).toContain(part);
  expect((await stat(join(cloud.home, 'credentials.json'))).mode & 0o777).toBe(0o600);
  expect(said).not.toContain(cloud.key.split(':')[1]);
});

test('the command that up prints makes a database', async () => {
  const said = await greeting();
  const lines = said.slice(
    said.indexOf('Make a database:') + 'Make a database:'.length,
    said.indexOf('Ctrl-C'),
  );
  expect(lines).toContain('service create --name first');
  const shell = spawn('bash', ['-e', '-c', lines], {
    env: { PATH: process.env['PATH'] ?? '' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let answer = '';
  shell.stdout.setEncoding('utf8').on('data', (text: string) => (answer += text));
  await once(shell, 'close');
  expect(answer).toContain('psql "postgres://tsdbadmin:');
  expect((await cloud.cli('service', 'delete', 'first')).code).toBe(0);
});

test('status and doctor', async () => {
  const status = await cloud.cli('status');
  expect(status).toMatchObject({ code: 0, stderr: '' });
  expect(status.stdout).toContain(`The control plane runs: ${cloud.apiUrl}`);
  const doctor = await cloud.cli('doctor');
  expect(doctor).toMatchObject({ code: 0, stderr: '' });
  for (const part of [
    'Node',
    'privileges',
    'PID namespaces',
    'mount namespaces',
    'outgoing connections',
    'file system',
    'size limits',
    'PostgreSQL',
    'type TIMESCALEDB',
    'type POSTGRES',
    'type VECTOR',
    'PgBouncer',
    'HAProxy',
  ])
    expect(doctor.stdout).toContain(part);
  for (const line of doctor.stdout.split('\n').filter((text) => text.startsWith('✗'))) {
    const next = doctor.stdout.split('\n')[doctor.stdout.split('\n').indexOf(line) + 1];
    expect(next, `the command that fixes it: ${line}`).toMatch(/^ {4}.*apt-get install/);
  }
});

test('without an installation, doctor, audit and down work, and none makes anything', async () => {
  const home = join(cloud.home, 'none');
  const before = cloud.env['HOWDAH_HOME'] ?? '';
  cloud.env['HOWDAH_HOME'] = home;
  try {
    const doctor = await cloud.cli('doctor');
    expect(doctor).toMatchObject({ code: 0, stderr: '' });
    expect(doctor.stdout).toMatch(/file system: .*none\/data, on .*: forks are /);
    expect(await cloud.cli('audit')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`no installation in ${home}: howdah up`),
    });
    expect(await cloud.cli('down', '--databases')).toMatchObject({ code: 0, stderr: '' });
    expect((await cloud.cli('store', 'show')).stdout).toContain('Nothing yet');
    expect(await readdir(cloud.home)).not.toContain('none');
    // Neither a directory nor a probe of the file system beside it.
    expect((await readdir(cloud.home)).filter((name) => name.startsWith('.probe-'))).toEqual([]);
  } finally {
    cloud.env['HOWDAH_HOME'] = before;
  }
});

test('a service from create to delete', async () => {
  const created = await cloud.cli(
    'service',
    'create',
    '--name',
    'by hand',
    '--addons',
    'none',
    '--memory-gbs',
    '2',
  );
  expect(created).toMatchObject({ code: 0, stderr: expect.stringContaining('✓ clone template') });
  const [, password = '', port = ''] =
    /postgres:\/\/tsdbadmin:([A-Za-z0-9_-]{32})@127\.0\.0\.1:(\d+)\/tsdb\?sslmode=verify-full/.exec(
      created.stdout,
    ) ?? [];
  const client = await connectTo(
    cloud,
    { endpoint: { host: '127.0.0.1', port: Number(port) } },
    password,
  );
  await client.end();

  const listed = await cloud.cli('service', 'list');
  expect(listed.stdout).toMatch(
    new RegExp(
      '^NAME +TYPE +STATUS +CPU +MEMORY +WITH +ENDPOINT\n' +
        String.raw`by hand +POSTGRES +READY +0\.5 +2 GB +127\.0\.0\.1:\d+\n$`,
    ),
  );
  const [service]: { service_id: string }[] = JSON.parse(
    (await cloud.cli('service', 'list', '-o', 'json')).stdout,
  );
  const id = service?.service_id ?? '';
  for (const name of [id, 'by hand'])
    expect(
      JSON.parse((await cloud.cli('service', 'get', name, '-o', 'json')).stdout),
    ).toMatchObject({ service_id: id, status: 'READY' });

  expect(await cloud.cli('service', 'start', id)).toMatchObject({
    code: 5,
    stderr: expect.stringContaining('cannot start a service that is READY'),
  });
  expect((await cloud.cli('service', 'stop', id)).code).toBe(0);
  expect((await cloud.get(id)).status).toBe('PAUSED');
  expect((await cloud.cli('service', 'start', 'by hand')).code).toBe(0);
  expect((await cloud.get(id)).status).toBe('READY');
  expect((await cloud.cli('service', 'resize', id, '--cpu-millis', '1000')).code).toBe(0);
  expect(await cloud.get(id)).toMatchObject({
    status: 'READY',
    resources: [{ spec: { cpu_millis: 1000, memory_gbs: 4 } }],
  });
  expect((await cloud.cli('service', 'resize', id, '--cpu-millis', '1000')).code).toBe(0);
  expect(await cloud.cli('service', 'resize', id, '--cpu-millis', '7')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('500/2'),
  });
  expect(await cloud.cli('service', 'rename', id, 'other name')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^NAME +other name$/m),
  });
  expect((await cloud.cli('service', 'delete', 'other name')).code).toBe(0);
  expect(await cloud.cli('service', 'get', id)).toMatchObject({
    code: 3,
    stderr: expect.stringContaining('howdah service list'),
  });
  expect((await cloud.request('GET', `/services/${id}`)).status).toBe(404);
  // Leftovers of other tests that were killed do not belong to this installation.
  const { code, stdout } = await cloud.cli('audit');
  const said = stdout.split('\n').filter((line) => line !== '' && !LEFT_BY_OTHERS.test(line));
  expect(said).toEqual(code === 0 ? ['No problems found.'] : []);
});

/** As leftovers.ts words it. */
const LEFT_BY_OTHERS = new RegExp(
  [
    ' belongs to an installation that no longer exists',
    ' belongs to no installation that is known here',
    '^shared memory of user ',
    ', a list of mounts, ',
    ', which is deleted',
  ].join('|'),
);

test.runIf((await findProgram('pgbouncer')) !== null)(
  'a connection pooler, from the create on and later',
  async () => {
    const created = await cloud.cli(
      'service',
      'create',
      '--name',
      'pooled',
      '--addons',
      'none',
      '--pooler',
    );
    expect(created.code, created.stderr).toBe(0);
    const id = /POSTGRES ([a-z0-9]{10}) at/.exec(created.stdout)?.[1] ?? '';
    const { connection_pooler: pooler } = await cloud.get(id);
    const endpoint = `127.0.0.1:${pooler?.endpoint.port}`;
    expect(created.stdout).toContain(
      `by transaction: ${endpoint}/tsdb_transaction?sslmode=require`,
    );
    expect(
      JSON.parse((await cloud.cli('service', 'get', 'pooled', '-o', 'json')).stdout),
    ).toMatchObject({ connection_pooler: pooler });
    const disabled = await cloud.cli('service', 'disable-pooler', id);
    expect([disabled.code, disabled.stdout.includes('POOLER')]).toEqual([0, false]);
    expect(await cloud.get(id)).not.toHaveProperty('connection_pooler');
    expect(await cloud.cli('psql', '--pooler', id)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`enable-pooler ${id}`),
    });
    const enabled = await cloud.cli('service', 'enable-pooler', 'pooled');
    expect(enabled.code).toBe(0);
    expect(enabled.stdout).toMatch(new RegExp(`^POOLER +${endpoint}$`, 'm'));
    expect((await cloud.cli('service', 'delete', id)).code).toBe(0);
  },
);

test('a wrong argument exits with 2, a missing thing with 3', async () => {
  const wrong: [string[], number, string][] = [
    [['service', 'get', 'nothing-like-it'], 3, 'nothing-like-it'],
    [['service', 'stop', 'nothing-like-it'], 3, 'nothing-like-it'],
    [['service', 'delete', 'nothing-like-it'], 3, 'nothing-like-it'],
    [['service', 'create', '--name', 'x', '--addons', 'sql'], 2, 'time-series, ai'],
    [['service', 'create', '--name', 'x', '--environment', 'prod'], 2, 'DEV, PROD'],
    [['service', 'create', '--name', 'x', '--cpu-millis', '7'], 2, '500/2'],
    [['service', 'create'], 2, '--name'],
    [['service', 'create', '--name', 'x', '--nmae', 'y'], 2, '--nmae'],
    [['service', 'frobnicate'], 2, 'frobnicate'],
    [['frobnicate'], 2, 'frobnicate'],
    [['up', '--prot', '1'], 2, '--prot'],
  ];
  for (const [args, code, part] of wrong) {
    const outcome = await cloud.cli(...args);
    expect(outcome, args.join(' ')).toMatchObject({ code, stderr: expect.stringContaining(part) });
  }
  expect((await cloud.request('GET', '/services')).body).toEqual([]);
});

test('two services of one name are told apart by their ids', async () => {
  const twins = await Promise.all(
    [1, 2].map(async () => cloud.create({ name: 'twin', service_type: 'POSTGRES' })),
  );
  const refused = await cloud.cli('service', 'stop', 'twin');
  expect(refused.code).toBe(2);
  for (const { service_id } of twins) expect(refused.stderr).toContain(service_id);
  for (const { service_id } of twins)
    expect((await cloud.cli('service', 'delete', service_id)).code).toBe(0);
});

test('settings that are wrong stop the start by name, before anything is made', async () => {
  await withHome(async (home) => {
    const wrong: [string[], Record<string, string>, string][] = [
      [[], { HOWDAH_PROT: '1' }, 'HOWDAH_PROT: no such setting'],
      [[], { HOWDAH_PORT: 'x' }, 'HOWDAH_PORT: found "x"'],
      [['--port', '0'], {}, 'HOWDAH_PORT: found "0"'],
      [['--port-range', '5-1'], {}, 'HOWDAH_PORT_RANGE: found "5-1"'],
      [['--host', 'example.com'], {}, 'HOWDAH_HOST: found "example.com"'],
      [['--public-host', 'http://x'], {}, 'HOWDAH_PUBLIC_HOST'],
      [['--spares', '99'], {}, 'HOWDAH_SPARES: found "99"'],
      [['--database-url', 'mysql://u:secret@h/d'], {}, 'HOWDAH_DATABASE_URL'],
      [['--home', ''], {}, 'HOWDAH_HOME'],
    ];
    for (const [args, env, part] of wrong) {
      const outcome = await howdah(['up', ...args], { HOWDAH_HOME: home, ...env });
      expect(outcome, part).toMatchObject({
        code: 2,
        stdout: '',
        stderr: expect.stringContaining(part),
      });
      expect(outcome.stderr).not.toContain('secret');
    }
    expect(await readdir(home)).toEqual([]);
  });
});

test('a start whose port is taken says so before anything is made', async () => {
  await withHome(async (home) => {
    const squatter = createServer().listen(0, '127.0.0.1');
    await once(squatter, 'listening');
    const address = squatter.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const outcome = await howdah(['up', '--port', String(port), '--port-range', '1024-1030'], {
      HOWDAH_HOME: home,
    });
    squatter.close();
    expect(outcome).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`port ${port} of 127.0.0.1 is taken`),
    });
    expect(await readdir(home), 'nothing was begun').toEqual([]);
    expect(outcome.stdout).toBe('');
    expect((await howdah(['down', '--databases'], { HOWDAH_HOME: home })).stdout).toContain(
      '0 databases stopped',
    );
    expect(await howdah(['status'], { HOWDAH_HOME: home })).toMatchObject({
      code: 8,
      stderr: expect.stringContaining('howdah up'),
    });
  });
});

test('without an installation, commands say how to get one', async () => {
  await withHome(async (home) => {
    for (const args of [['status'], ['service', 'list'], ['psql', 'x']])
      expect(await howdah(args, { HOWDAH_HOME: join(home, 'none') })).toMatchObject({
        code: 8,
        stderr: expect.stringContaining('howdah up'),
      });
    expect(await howdah(['down'], { HOWDAH_HOME: join(home, 'none') })).toMatchObject({
      code: 0,
      stdout: 'The control plane is not running.\n',
    });
  });
});

test('a home that begins with ~ is the same for every command', async () => {
  await withHome(async (home) => {
    const outcome = await howdah(['service', 'list'], { HOME: home, HOWDAH_HOME: '~/cloud' });
    expect(outcome.stderr).toContain(join(home, 'cloud', 'credentials.json'));
  });
});

test('down stops the control plane, --databases both; up brings back what was READY', async () => {
  const service = await cloud.create({ name: 'goes on', service_type: 'POSTGRES' });
  const resting = await cloud.create({ name: 'rests', service_type: 'POSTGRES' });
  expect((await cloud.cli('service', 'stop', resting.service_id)).code).toBe(0);
  const client = await connectTo(cloud, service, service.initial_password);
  const down = await cloud.cli('down');
  expect(down).toMatchObject({
    code: 0,
    stdout: 'The control plane has stopped; the databases keep running.\n',
    stderr: '',
  });
  expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
  await expect(fetch(`http://127.0.0.1:${cloud.port}/healthz`)).rejects.toThrow();
  expect((await cloud.cli('status')).code).toBe(8);
  expect(await cloud.cli('service', 'list')).toMatchObject({
    code: 8,
    stderr: expect.stringContaining('howdah up'),
  });
  expect(await cloud.cli('down')).toMatchObject({
    code: 0,
    stdout: 'The control plane is not running.\n',
  });

  await cloud.up();
  expect((await cloud.get(service.service_id)).status).toBe('READY');
  expect((await client.query('select 2 as two')).rows).toEqual([{ two: 2 }]);
  await client.end();

  const both = await cloud.cli('down', '--databases');
  expect(both).toMatchObject({ code: 0, stderr: '' });
  expect(both.stdout).toContain(`stopped ${service.service_id}`);
  expect(both.stdout).not.toContain(resting.service_id);
  expect(both.stdout).toContain('1 database stopped');
  await expect(connectTo(cloud, service, service.initial_password)).rejects.toThrow(/ECONNREFUSED/);

  await cloud.up();
  await untilExpected('the database accepts connections', async () =>
    expect(
      await connectTo(cloud, service, service.initial_password)
        .then(async (again) => again.end().then(() => 'reached'))
        .catch(() => 'not yet'),
    ).toBe('reached'),
  );
  await cloud.until(service.service_id, 'READY');
  expect((await cloud.get(resting.service_id)).status).toBe('PAUSED');
});
