/** The settings of a service beside those of a cluster that initdb has just made. */
import { execFile, spawn } from 'node:child_process';
import { chmod, chown, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, type Installation } from './harness.ts';
import { initdbArguments, prepareMachine } from './probe.ts';
import { share } from './shared.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await share();
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

const run = promisify(execFile);

type Settings = ReadonlyMap<string, string>;

async function settingsOf(client: Client): Promise<Settings> {
  const { rows } = await client.query<{ name: string; setting: string }>(
    "select name, coalesce(setting, '') as setting from pg_settings",
  );
  return new Map(rows.map(({ name, setting }) => [name, setting]));
}

/** The names in the first column of the tables of the page; `*` means any end. */
async function wantedDifferences(): Promise<RegExp[]> {
  const page = await readFile(new URL('../../../docs/settings.md', import.meta.url), 'utf8');
  const local = page.split('## On Kubernetes')[0] ?? '';
  return [...local.matchAll(/^\| (`[^|]+) \|/gm)]
    .flatMap(([, names = '']) => [...names.matchAll(/`([^`]+)`/g)])
    .map(([, name = '']) => new RegExp(`^${name.replaceAll('.', '\\.').replace('*', '.*')}$`));
}

/** Starts a plain cluster of a major version, reads its settings and removes it. */
async function plainSettings(major: number): Promise<Settings> {
  const machine = await prepareMachine(cloud.home);
  const bin = machine.installations.usable.find((one) => one.major === major)?.bin ?? '';
  const directory = await mkdtemp(join(tmpdir(), 'hd-plain-'));
  const user = machine.owner === null ? {} : { uid: machine.owner.uid, gid: machine.owner.gid };
  if (machine.owner !== null) await chown(directory, machine.owner.uid, machine.owner.gid);
  await chmod(directory, 0o711);
  const data = join(directory, 'data');
  const env = { PATH: '/usr/bin:/bin', LANG: 'C.UTF-8' };
  const how = { ...user, cwd: directory, env };
  await run(
    join(bin, 'initdb'),
    ['-D', data, '--no-sync', '--auth=trust', ...initdbArguments(major)],
    how,
  );
  const server = spawn(join(bin, 'postgres'), ['-D', data, '-k', directory, '-h', ''], how);
  const client = () => new Client({ host: directory, user: 'howdah', database: 'postgres' });
  try {
    let found: Settings = new Map();
    await untilExpected('the plain cluster answers', async () => {
      const session = client();
      await session.connect();
      found = await settingsOf(session);
      await session.end();
      expect(found.size).toBeGreaterThan(300);
    });
    return found;
  } finally {
    const ended = new Promise((resolve) => server.once('exit', resolve));
    server.kill('SIGINT');
    await ended;
    await rm(directory, { recursive: true });
  }
}

test('a service differs from a cluster of the same initdb only as documented', async () => {
  const service = await cloud.create({ name: 'plain', service_type: 'POSTGRES' });
  const client = await connectTo(cloud, service, service.initial_password);
  const found = await settingsOf(client);
  const major = Math.floor(Number(found.get('server_version_num')) / 10_000);
  const plain = await plainSettings(major);
  const wanted = await wantedDifferences();
  const differences = [...found, ...[...plain].filter(([name]) => !found.has(name))].filter(
    ([name]) => found.get(name) !== plain.get(name) && !wanted.some((one) => one.test(name)),
  );
  expect(differences).toEqual([]);
  // A row without a difference would hide one of tomorrow.
  expect(wanted.length).toBeGreaterThan(40);
  const { rows } = await client.query("select to_tsvector('The houses')::text as words");
  expect(rows).toEqual([{ words: "'hous':2" }]);
  await client.end();
});
