/** Journeys through a real installation by the command line alone, as a script makes them. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, type Installation } from '../../server/test/harness.ts';
import { share } from '../../server/test/shared.ts';
import { untilExpected } from '../../server/test/until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await share();
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

/** The variables that a shell reads from printed assignments. */
async function variables(text: string): Promise<Record<string, string>> {
  const child = spawn('sh', ['-c', 'set -a; eval "$TEXT"; env -0'], {
    env: { PATH: process.env['PATH'] ?? '', TEXT: text },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (said += part));
  await once(child, 'close');
  return Object.fromEntries(
    said
      .split('\0')
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
}

type Fork = {
  service_id: string;
  endpoint: { host: string; port: number };
  initial_password: string;
};

/** A dry run says what would be done, and does nothing. */
async function expectDryRuns(id: string): Promise<void> {
  const asked = await cloud.cli('service', 'resize', 'shop', '--cpu-millis', '1000', '--dry-run');
  expect(asked).toMatchObject({
    code: 0,
    stderr: '',
    stdout: expect.stringContaining(`Nothing was done. It would resize ${id}:`),
  });
  expect((await cloud.cli('service', 'delete', 'shop', '--dry-run')).stdout).toContain(
    `It would delete ${id}`,
  );
  expect(await cloud.get(id)).toMatchObject({
    status: 'READY',
    resources: [{ spec: { cpu_millis: 500 } }],
  });
}

/** Makes a fork, which has the data, the server log and the events that it must have. */
async function forkShop(): Promise<void> {
  const forked = await cloud.cli('service', 'fork', 'shop', '--name', 'trial', '-o', 'json');
  expect(forked.code).toBe(0);
  const trial: Fork = JSON.parse(forked.stdout);
  const fork = await connectTo(cloud, trial, trial.initial_password);
  expect((await fork.query('table kept')).rows).toEqual([{ answer: 42 }]);
  await fork.end();

  expect((await cloud.cli('logs', 'trial', '--search', 'ready to accept')).stdout).toContain(
    'database system is ready to accept connections',
  );
  const shown = (await cloud.cli('events', '-o', 'json')).stdout
    .trim()
    .split('\n')
    .map((line): { type: string } => JSON.parse(line));
  expect(shown.map(({ type }) => type)).toContain('operation.finished');
}

/** A call that a status, a value or a role does not allow ends with the exit code for it. */
async function expectRefusals(): Promise<void> {
  expect(await cloud.cli('service', 'start', 'trial')).toMatchObject({ code: 5, stdout: '' });
  expect(await cloud.cli('service', 'resize', 'trial', '--cpu-millis', '7')).toMatchObject({
    code: 2,
  });
  const key = await cloud.cli('key', 'create', '--name', 'reader', '--role', 'viewer', '-o', 'env');
  const { KEY_PUBLIC_KEY: publicKey, KEY_SECRET_KEY: secretKey } = await variables(key.stdout);
  cloud.env['HD_KEY'] = `${publicKey}:${secretKey}`;
  expect(await cloud.cli('service', 'delete', 'trial')).toMatchObject({ code: 4, stdout: '' });
  delete cloud.env['HD_KEY'];
}

test('the command line creates, queries, forks, follows and deletes a service', async () => {
  const created = await cloud.cli(
    'service',
    'create',
    '--name',
    'shop',
    '--addons',
    'none',
    '-o',
    'env',
  );
  expect(created).toMatchObject({ code: 0, stderr: expect.stringContaining('✓ start PostgreSQL') });
  const shop = await variables(created.stdout);
  const id = shop['SERVICE_ID'] ?? '';
  const at = (found: Record<string, string>) => ({
    endpoint: { host: found['PGHOST'] ?? '', port: Number(found['PGPORT']) },
  });
  // As it is printed, with its certificate: `pg` reads what libpq reads.
  const printed = new Client({ connectionString: shop['DATABASE_URL'] });
  await printed.connect();
  await printed.end();
  const client = await connectTo(cloud, at(shop), shop['PGPASSWORD'] ?? '');
  await client.query('create table kept as select 42 as answer');
  await client.end();

  // With the certificate of this machine's authority, and without the password, which nobody keeps.
  const url = await cloud.cli('url', 'shop');
  const ca = join(cloud.home, 'ca', 'ca.pem');
  expect(url).toEqual({
    code: 0,
    stderr: '',
    stdout:
      `postgres://tsdbadmin@127.0.0.1:${shop['PGPORT']}/tsdb` +
      `?sslmode=verify-full&sslrootcert=${ca}\n`,
  });
  expect(shop['DATABASE_URL']).toBe(
    url.stdout.trim().replace('tsdbadmin@', `tsdbadmin:${shop['PGPASSWORD']}@`),
  );
  expect(await cloud.cli('service', 'get', 'shop', '-o', 'json')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('"status": "READY"'),
  });

  await expectDryRuns(id);
  await forkShop();
  await expectRefusals();

  expect(await cloud.cli('service', 'delete', 'trial')).toMatchObject({ code: 0, stdout: '' });
  expect(await cloud.cli('service', 'get', 'trial')).toMatchObject({ code: 3, stdout: '' });
  expect((await cloud.cli('service', 'list-deleted')).stdout).toMatch(/^trial +POSTGRES/m);
  expect((await cloud.cli('service', 'restore', 'trial')).code).toBe(0);
  for (const name of ['trial', 'shop'])
    expect((await cloud.cli('service', 'delete', name)).code).toBe(0);
});

test('peerings and allow lists are made and deleted by name', { tags: 'slow' }, async () => {
  const cli = async (line: string) => {
    const outcome = await cloud.cli(...line.split(' '));
    expect(outcome.code, `${line}: ${outcome.stderr}`).toBe(0);
    return outcome.stdout;
  };
  await cli('vpc create --name office --cidr 10.81.0.0/24');
  await cli('vpc create --name warehouse --cidr 10.82.0.0/24');
  await cli('peering create office --peer warehouse');
  await untilExpected('the peering is active, from both sides', async () => {
    expect(await cli('peering list office')).toMatch(/^warehouse +active/m);
    expect(await cli('peering get warehouse office')).toMatch(/^WITH +office\nSTATUS +active$/m);
  });
  await cli('peering delete warehouse office');
  expect(await cli('peering list office')).toMatch(/^WITH +STATUS +WHY\n$/);
  for (const name of ['office', 'warehouse']) await cli(`vpc delete ${name}`);

  await cli('allow-list create --description home --cidr 203.0.113.0/24');
  await cli('service create --name listed --type POSTGRES');
  await cli('service attach-allow-list listed home');
  expect(await cli('service get listed')).toMatch(/^ALLOW LIST +home$/m);
  await cli('service detach-allow-list listed');
  await cli('allow-list delete home');
  await cli('service delete listed');
});

test.runIf(spawnSync('psql', ['--version']).status === 0)(
  'psql connects with the certificate checked',
  async () => {
    const created = await cloud.cli(
      'service',
      'create',
      '--name',
      'typed',
      '--addons',
      'none',
      '-o',
      'env',
    );
    cloud.env['PGPASSWORD'] = (await variables(created.stdout))['PGPASSWORD'] ?? '';
    const asked = await cloud.cli(
      'psql',
      'typed',
      '-Atc',
      'select ssl from pg_stat_ssl where pid = pg_backend_pid()',
    );
    delete cloud.env['PGPASSWORD'];
    expect(asked).toEqual({ code: 0, stdout: 't\n', stderr: '' });
    expect((await cloud.cli('service', 'delete', 'typed')).code).toBe(0);
  },
);
