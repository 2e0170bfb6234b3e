// @module-tag slow
/** A service of one installation becomes a new one of another, from the repository of the first. */
import { chmod, mkdir, readdir, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { Value } from 'typebox/value';
import { RecoveryKitSchema, type RecoveryKit } from '@howdah/contract';
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { getObject, putObject, repositoryOf } from '../test-repositories/probe.ts';
import { openForged } from './forged-repository.ts';
import { connectTo, install, makeHome, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { CONTROL_OBJECT, createLayout, findPgBackRest, type PgBackRest, run } from './probe.ts';
import { untilExpected } from './until.ts';

const pgBackRest = await findPgBackRest();

let production: Installation;
let staging: Installation;
/** The repository, and the recovery kit, on another disk as far as both know. */
let away: string;
let kitPath: string;
beforeAll(async () => {
  away = await makeHome();
  kitPath = join(away, 'kit.json');
  production = await install();
  staging = await install();
});
afterAll(async () => {
  const problems = [
    ...((await production?.destroy()) ?? []),
    ...((await staging?.destroy()) ?? []),
  ];
  await rm(away, { recursive: true, force: true });
  expect(problems).toEqual([]);
});

type Made = Service & { initial_password: string };

/** Runs the command in staging. */
const fromKit = (...more: string[]) => staging.cli('service', 'create-from-kit', kitPath, ...more);

function parseMade(stdout: string): Made {
  const made: Made = JSON.parse(stdout);
  return made;
}

/** Whether services of staging have operating system users of their own. */
async function isIsolated(): Promise<boolean> {
  const { body } = await staging.request('GET', '/regions');
  return Reflect.get(Object(Object(Object(body)[0]).isolation), 'isolated') === true;
}

/** Everything in the repository, as far as a change of it would show. */
async function contentsOf(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const lines = files.map(async ({ parentPath, name }) => {
    const { size, mtimeMs, ino } = await stat(join(parentPath, name));
    return [join(parentPath, name), size, mtimeMs, ino].join(' ');
  });
  return (await Promise.all(lines)).toSorted();
}

/** When the repository has all commits of a service, and the data of the control plane, of now. */
async function untilSafe({ service_id: id, created }: Service): Promise<void> {
  const nowMs = Date.now();
  const latestMs = async () => {
    const { body } = await production.request('GET', `/services/${id}/backupStatus`);
    const [state]: unknown[] = [Reflect.get(Object(body), 'off_machine')].flat();
    return Date.parse(String(Reflect.get(Object(state), 'latest')));
  };
  const savedMs = async () => {
    const { stdout } = await production.cli('repo', 'show', 'offsite', '-o', 'json');
    return Date.parse(String(Reflect.get(Object(JSON.parse(stdout)), 'control_saved')));
  };
  await untilExpected('the repository has all commits of the service', async () =>
    expect(await latestMs()).toBeGreaterThan(nowMs),
  );
  await untilExpected('the repository has the data of the control plane', async () =>
    expect(await savedMs()).toBeGreaterThan(Date.parse(created)),
  );
}

/** Makes the service of production: two rows, a moment, a third row. @returns the moment */
async function fill(orders: Made): Promise<string> {
  const client = await connectTo(production, orders, orders.initial_password);
  await client.query('create table ledger as select * from generate_series(1, 2) as n');
  await client.query("create role app login password 'the password of app'");
  await client.query('grant select on ledger to app');
  const { rows } = await client.query<{ at: string }>(
    `select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at`,
  );
  await client.query('insert into ledger values (3)');
  await client.end();
  return rows[0]?.at ?? '';
}

/** The rows of a copy, read with the password that its create has answered. */
async function readLedger(copy: Made): Promise<number[]> {
  const client = await connectTo(staging, copy, copy.initial_password);
  const { rows } = await client.query<{ n: number }>('select n from ledger order by n');
  // The copy accepts writes.
  await client.query('insert into ledger values (1000)');
  await client.query('delete from ledger where n = 1000');
  await client.end();
  return rows.map(({ n }) => n);
}

test('a service of production becomes one of staging, unnoticed by production', async () => {
  if (pgBackRest === null || !(await isIsolated())) {
    await writeFile(kitPath, JSON.stringify(kitOf(join(away, 'repository'))));
    const refused = await fromKit('orders');
    expect(refused).toMatchObject({ code: 9 });
    expect(refused.stderr).toMatch(/apt-get install pgbackrest|Run Howdah as root/);
    return;
  }
  const repository = join(away, 'repository');
  await mkdir(repository);
  const orders = await production.create({ name: 'orders', service_type: 'POSTGRES' });
  expect(await production.cli('repo', 'add', 'offsite', '--path', repository)).toMatchObject({
    code: 0,
  });
  await expectBackup(orders);
  const at = await fill(orders);
  await untilSafe(orders);
  const kit = await production.cli('repo', 'kit', 'offsite');
  await writeFile(kitPath, kit.stdout);
  // The backups that it sends by itself would look like a change.
  await production.stop('SIGTERM');
  const before = await contentsOf(repository);

  const listed = await fromKit('--dry-run');
  expect(listed).toMatchObject({ code: 0, stderr: '' });
  expect(listed.stdout).toMatch(
    new RegExp(`orders \\(${orders.service_id}\\) comes back as of .*Z and with the WAL after it`),
  );
  const asked = await staging.request('POST', '/services/fromKit?dry_run=true', {
    kit: JSON.parse(await readFile(kitPath, 'utf8')),
  });
  expect(Reflect.get(Object(asked.body), 'services')).toContainEqual({
    service_id: orders.service_id,
    name: 'orders',
    can_come_back: true,
    state: expect.stringContaining('comes back as of'),
  });
  const planned = await fromKit('orders', '--dry-run');
  expect(planned.stdout).toContain('restore data');
  expect((await staging.request('GET', '/services')).body).toEqual([]);

  const made = await fromKit('orders', '--name', 'copy', '-o', 'json');
  expect(made.code, made.stderr).toBe(0);
  const copy = parseMade(made.stdout);
  expect(copy).toMatchObject({ name: 'copy', metadata: { environment: 'DEV' } });
  expect(copy.service_id).not.toBe(orders.service_id);
  expect(await readLedger(copy)).toEqual([1, 2, 3]);
  await expectRoles(orders, copy);
  const [operation] = await staging.operations(copy.service_id);
  expect(operation).toMatchObject({ kind: 'create', status: 'succeeded' });
  expect(operation?.steps.find(({ name }) => name === 'restore data')?.detail).toMatch(
    /^backup of .*Z and its WAL from .* in [\d.]+ s, to be rolled forward to its end$/,
  );
  // The copy's own snapshots and WAL begin with it: a fork has the rows too.
  const fork = await staging.cli('service', 'fork', 'copy', '--name', 'fork', '-o', 'json');
  expect(await readLedger(parseMade(fork.stdout))).toEqual([1, 2, 3]);
  await expectNothingKept(copy);

  await expectPast(at);
  await expectDeleted();
  await expectHostile(repository, orders);
  await expectForged(pgBackRest, repository, orders);

  expect(await contentsOf(repository)).toEqual(before);
  await production.up();
  const checked = await production.cli('repo', 'check', 'offsite', '-o', 'json');
  expect(JSON.parse(checked.stdout)).toMatchObject({ problem: null });
});

async function expectBackup({ name }: Service): Promise<void> {
  expect(await production.cli('backup', 'run', name)).toMatchObject({ code: 0 });
}

/** The administrator has a password of its own; other roles have theirs. */
async function expectRoles(orders: Made, copy: Made): Promise<void> {
  await expect(connectTo(staging, copy, orders.initial_password)).rejects.toThrow(/password/);
  const app = await connectTo(staging, copy, 'the password of app', { user: 'app' });
  expect((await app.query('select count(*)::int as n from ledger')).rows).toEqual([{ n: 3 }]);
  await app.end();
}

/** The credentials of the repository are not kept, and lost data is not restored by itself. */
async function expectNothingKept({ service_id: id }: Service): Promise<void> {
  const metadata = await openMetadata(staging.home);
  const { rows } = await sql<{ recovery: unknown }>`
    select recovery from services where id = ${id}`.execute(metadata.db);
  await metadata.close();
  expect(rows).toEqual([{ recovery: null }]);
}

/** A state of the past, with a crash of the control plane while it is fetched. */
async function expectPast(at: string): Promise<void> {
  const made = await fromKit('orders', '--name', 'past', '--at', at, '--no-wait', '-o', 'json');
  expect(made.code, made.stderr).toBe(0);
  const past = parseMade(made.stdout);
  await staging.stop('SIGKILL');
  await staging.up();
  await staging.until(past.service_id, 'READY');
  expect(await readLedger(past)).toEqual([1, 2]);
  const early = await fromKit('orders', '--at', '2026-01-01T00:00:00Z');
  expect(early.stderr).toContain('has no backup from before 2026-01-01T00:00:00Z');
}

/** A service that is deleted while it is made leaves nothing of what was fetched. */
async function expectDeleted(): Promise<void> {
  const made = await fromKit('orders', '--name', 'deleted', '--no-wait', '-o', 'json');
  expect(made.code, made.stderr).toBe(0);
  const { service_id: id } = parseMade(made.stdout);
  await staging.stop('SIGKILL');
  await staging.up();
  expect(await staging.cli('service', 'purge', 'deleted', '--confirm', 'deleted')).toMatchObject({
    code: 0,
  });
  const data = join(staging.home, 'data');
  const { spool } = createLayout(await readlink(data).catch(() => data));
  const left = async () => (await readdir(spool)).filter((name) => name.includes(id));
  await untilExpected('nothing that was fetched is left', async () =>
    expect(await left()).toEqual([]),
  );
}

const kitOf = (path: string): RecoveryKit => ({
  howdah: 'recovery kit',
  installation_id: 'elsewhere',
  repository: { name: 'there', type: 'path', path },
  passphrase: 'another one',
});

const listIds = async (): Promise<unknown[]> => {
  const { body } = await staging.request('GET', '/services');
  return [body].flat().map((service) => Reflect.get(Object(service), 'service_id'));
};

/** Contents and kits that are wrong are refused, and the API goes on. */
async function expectHostile(repository: string, orders: Service): Promise<void> {
  const unknown = await fromKit('nobody');
  expect(unknown.stderr).toContain(`service: found "nobody"; the repository has: orders (`);
  const asked = async (kit: object) =>
    staging.request('POST', '/services/fromKit', { kit, service: orders.service_id });
  const refused = { status: 400, body: { code: 'INVALID_REQUEST' } };
  expect(await asked(kitOf(repository))).toMatchObject(refused);
  expect(await asked(kitOf(join(repository, 'nowhere')))).toMatchObject(refused);
  expect(await asked({ ...kitOf(repository), passphrase: 'x\u0000y' })).toMatchObject(refused);

  const services = await listIds();
  const other = join(away, 'hostile');
  await mkdir(other);
  const added = await staging.cli('repo', 'add', 'own', '--path', other);
  expect(added, added.stderr).toMatchObject({ code: 0 });
  const kit: unknown = JSON.parse((await staging.cli('repo', 'kit', 'own')).stdout);
  if (pgBackRest === null || !Value.Check(RecoveryKitSchema, kit)) throw new Error('no kit');
  const opened = repositoryOf(kit);
  const row = { id: '../../../x', name: 'x', storage_gb: 1, parent_id: null, deleted_at: null };
  for (const [contents, why] of [
    [Buffer.from('no data of a control plane'), 'cannot be read'],
    [gzipSync('{"table":"services","row":{}}\n'.repeat(1000)), 'the repository has: none'],
    [gzipSync(JSON.stringify({ table: 'services', row })), 'the repository has: none'],
  ] as const) {
    // The repository's own control plane may have written between the two.
    await untilExpected(`the data of the control plane is refused: ${why}`, async () => {
      await putObject(pgBackRest, opened, CONTROL_OBJECT, contents);
      expect(await getObject(pgBackRest, opened, CONTROL_OBJECT)).not.toBeNull();
      const { body } = await asked(kit);
      expect(body).toMatchObject({
        code: 'INVALID_REQUEST',
        message: expect.stringContaining(why),
      });
    });
  }
  expect(await listIds()).toEqual(services);
}

/** A copy of the repository, in which the files that pgBackRest has written are forged. */
async function expectForged(
  program: PgBackRest,
  repository: string,
  { service_id: id }: Service,
): Promise<void> {
  const [copy, loot] = [join(away, 'forged'), join(away, 'loot')];
  await run('cp', ['-a', repository, copy]);
  await mkdir(loot);
  await chmod(loot, 0o777);
  const own: unknown = JSON.parse(await readFile(kitPath, 'utf8'));
  if (!Value.Check(RecoveryKitSchema, own)) throw new Error('no kit');
  const kit = { ...own, repository: { ...own.repository, path: copy } };
  const forged = await openForged(program, repositoryOf(kit), id);
  const services = await listIds();
  const body = { kit, service: id, name: 'forged' };
  for (const [what, change] of forged.infos) {
    await change();
    const { status, body: refused } = await staging.request('POST', '/services/fromKit', body);
    expect([what, status, refused]).toEqual([what, 400, expect.anything()]);
    expect(refused, what).toMatchObject({ code: 'INVALID_REQUEST' });
  }
  expect(await listIds()).toEqual(services);
  for (const [what, change] of forged.manifests(loot)) {
    await change();
    const { status, body: made } = await staging.request('POST', '/services/fromKit', body);
    expect([what, status]).toEqual([what, 202]);
    const madeId = String(Reflect.get(Object(made), 'service_id'));
    const errorOf = async () => (await staging.operations(madeId))[0]?.error ?? '';
    await untilExpected(`the create fails: ${what}`, async () =>
      expect(await errorOf()).toContain('has a backup with files outside of its data directory'),
    );
    expect(await readdir(loot), what).toEqual([]);
    const purged = await staging.cli('service', 'purge', 'forged', '--confirm', 'forged');
    expect(purged, purged.stderr).toMatchObject({ code: 0 });
  }
  expect(await listIds()).toEqual(services);
}
