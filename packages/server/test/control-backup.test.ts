/**
 * A control plane that has lost what it keeps, and takes its databases over again from a backup.
 */
import {
  mkdir,
  rmdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, install, makeHome, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';

let cloud: Installation;
let away: string;
const incomplete: string[] = [];
beforeAll(async () => {
  cloud = await install();
  away = await makeHome();
});
afterAll(async () => {
  await rm(away, { recursive: true, force: true });
  // The test itself removed services: their empty cgroups are left, where there are any.
  const isExpected = (finding: string): boolean =>
    incomplete.some((id) => finding.startsWith(`cgroup of ${id}`));
  expect(await cloud?.destroy(isExpected)).toEqual([]);
});

async function createPaused(name: string): Promise<Service> {
  const { service_id: id } = await cloud.create({ name, service_type: 'POSTGRES' });
  await cloud.request('POST', `/services/${id}/stop`);
  return cloud.until(id, 'PAUSED');
}

test('metadata, CA and keys come back; running databases are taken over unnoticed', async () => {
  const kept = await cloud.create({ name: 'kept', service_type: 'POSTGRES' });
  const paused = await createPaused('paused');
  const lost = await createPaused('lost');
  const client = await connectTo(cloud, kept, kept.initial_password);
  await client.query('create table t as select 42 as answer');
  const [ca, before] = [await cloud.caPem(), await cloud.operations()];

  const file = join(away, 'control.gz');
  const written = await cloud.cli('backup-control', file);
  expect(written).toMatchObject({ code: 0, stderr: '' });
  expect((await stat(file)).mode & 0o077).toBe(0);
  const later = await createPaused('later');

  // There is something already: nothing is touched.
  expect((await cloud.cli('restore-control', file)).stderr).toContain('howdah down');
  await cloud.stop('SIGTERM');
  expect((await cloud.cli('restore-control', file)).stderr).toContain(
    'the metadata database is not empty',
  );
  expect((await cloud.cli('backup-control', file)).stderr).toContain('is not running');

  // Everything but the databases is gone, and one of those.
  incomplete.push(lost.service_id, later.service_id);
  const data = await readlink(join(cloud.home, 'data')).catch(() => join(cloud.home, 'data'));
  const directoryOf = ({ service_id }: Service): string => join(data, 'services', service_id);
  for (const path of [
    join(data, 'store'),
    directoryOf(lost),
    ...['ca', 'credentials.json', 'control.json'].map((name) => join(cloud.home, name)),
  ])
    await rm(path, { recursive: true, force: true });

  const broken = join(away, 'broken.gz');
  await writeFile(broken, await readFile(file));
  await truncate(broken, (await stat(file)).size - 50);
  expect((await cloud.cli('restore-control', broken)).stderr).toContain('cannot be read');
  await writeFile(broken, 'nothing of the kind');
  expect((await cloud.cli('restore-control', broken)).code).toBe(1);
  expect(await readdir(cloud.home)).not.toContain('ca');

  // A file that exists and cannot be read does not count as missing.
  const unreadable = join(cloud.home, 'credentials.json');
  await mkdir(unreadable);
  expect((await cloud.cli('restore-control', file)).code).toBe(1);
  expect(await readdir(data)).not.toContain('store');
  await rmdir(unreadable);

  const restored = await cloud.cli('restore-control', file);
  expect(restored).toMatchObject({ code: 0, stderr: '' });
  expect(restored.stdout).toContain(`service ${lost.service_id} (lost)`);
  expect(restored.stdout).toContain(
    `the directory of ${later.service_id} was made after the backup`,
  );
  expect(await cloud.caPem()).toBe(ca);

  await cloud.up();
  await cloud.until(kept.service_id, 'READY');
  // The session of before is still the same.
  expect((await client.query('table t')).rows).toEqual([{ answer: 42 }]);
  await client.end();
  expect((await cloud.get(paused.service_id)).status).toBe('PAUSED');
  expect((await cloud.request('GET', `/services/${lost.service_id}`)).status).toBe(404);
  expect((await cloud.operations(kept.service_id)).at(-1)).toEqual(
    before.find(({ service_id }) => service_id === kept.service_id),
  );
  // Both go on.
  await cloud.request('POST', `/services/${paused.service_id}/start`);
  await cloud.until(paused.service_id, 'READY');
  await cloud.create({ name: 'new', service_type: 'POSTGRES' });
  await rm(directoryOf(later), { recursive: true });
});

test('a shell with the variables of a service changes nothing of an installation', async () => {
  const app = await cloud.create({ name: 'app', service_type: 'POSTGRES' });
  const { initial_password: password, endpoint } = app;
  const url = `postgres://tsdbadmin:${password}@127.0.0.1:${endpoint.port}/tsdb?sslmode=no-verify`;
  const credentials = await readFile(join(cloud.home, 'credentials.json'), 'utf8');
  const shell = {
    DATABASE_URL: url,
    PGHOST: '127.0.0.1',
    PGPORT: String(app.endpoint.port),
    PGSSLMODE: 'verify-full',
    PGOPTIONS: '-c search_path=nowhere',
    PGSERVICE: 'nowhere',
  };
  await cloud.stop('SIGTERM');
  Object.assign(cloud.env, shell);
  await cloud.up();
  expect((await cloud.get(app.service_id)).status).toBe('READY');
  // The test before has left empty cgroups.
  const { stdout, stderr } = await cloud.cli('audit');
  expect(`${stdout}${stderr}`).toMatch(/problems? found/i);
  expect(await cloud.cli('backup-control', join(away, 'shell.gz'))).toMatchObject({ code: 0 });
  for (const name of Object.keys(shell)) delete cloud.env[name];

  // The name of our own is refused, by every command, and so is the database itself.
  await cloud.stop('SIGTERM');
  cloud.env['HOWDAH_DATABASE_URL'] = url;
  for (const command of ['up', 'audit']) {
    const refused = await cloud.cli(command);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('howdah metadata-database');
  }
  delete cloud.env['HOWDAH_DATABASE_URL'];
  const change = async (): Promise<string> =>
    (await cloud.cli('metadata-database', url)).stderr.replace(app.initial_password, 'PASSWORD');
  expect(await change()).toContain('is the service app of this installation');
  const client = await connectTo(cloud, app, app.initial_password);
  expect(
    (await client.query('select from pg_tables where schemaname = $1', ['public'])).rowCount,
  ).toBe(0);
  await client.query('create table orders ()');
  await client.end();
  expect(await change()).toContain('tables of another program (public.orders)');

  // Without its own metadata database, a home does not begin another one.
  const data = await readlink(join(cloud.home, 'data')).catch(() => join(cloud.home, 'data'));
  await rename(join(data, 'store'), join(data, 'store-away'));
  expect((await cloud.cli('up')).stderr).toContain('store is missing');
  expect(await readdir(data)).not.toContain('store');
  await rename(join(data, 'store-away'), join(data, 'store'));
  expect(await readFile(join(cloud.home, 'credentials.json'), 'utf8')).toBe(credentials);
  await cloud.up();
  expect((await cloud.get(app.service_id)).status).toBe('READY');
});
