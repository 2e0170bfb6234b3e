// @module-tag slow
/** A repository that is away, lacks WAL, or gets another owner: who is warned, and what goes on. */
import { chmod, mkdir, readdir, readFile, rename, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Schemas } from '@howdah/client';
import { putObject, takeSnapshot } from '../test-repositories/probe.ts';
import { makeHome } from './harness.ts';
import { findPgBackRest, isWalFile, ownerOf, whyNotServed } from './probe.ts';
import { hurried } from './tuning.ts';
import {
  cloud,
  context,
  execute,
  pathsOf,
  setUp,
  switchWal,
  tearDown,
  type ServiceAccess,
} from './repository-cloud.ts';
import { untilExpected } from './until.ts';

const program = await findPgBackRest();
const isServed = whyNotServed(program, 17) === null;
/** Longer than a backlog may be without a warning. */
const LATE_MS = 600_000;

/** A directory outside of the installation, with a pgBackRest that notes its commands. */
let away: string;
let path: string;
let commands: string;
beforeAll(async () => {
  if (!isServed || program === null) return;
  away = await makeHome();
  path = join(away, 'repository');
  commands = join(away, 'commands');
  const bin = join(away, 'bin');
  await mkdir(bin);
  await writeFile(commands, '', { mode: 0o666 });
  await chmod(commands, 0o666);
  const script = `#!/bin/sh\necho "$*" >>${commands}\nexec ${program.program} "$@"\n`;
  await writeFile(join(bin, 'pgbackrest'), script, { mode: 0o755 });
  for (const directory of [away, bin]) await chmod(directory, 0o755);
  await setUp({
    PATH: `${bin}:${process.env['PATH'] ?? ''}`,
    ...hurried({ repositoryBackups: { fullEveryMs: 1, backupEveryMs: 1 } }),
  });
});
afterAll(async () => {
  if (!isServed) return;
  await tearDown();
  await rm(away, { recursive: true, force: true });
});

async function backupsOf({ service_id: id }: ServiceAccess): Promise<Schemas['Backups']> {
  const { data } = await cloud.client.GET(
    '/projects/{project_id}/services/{service_id}/backupStatus',
    { params: { path: { project_id: cloud.projectId, service_id: id } } },
  );
  if (data === undefined) throw new Error('no backups');
  return data;
}

const offMachineOf = async (service: ServiceAccess) => (await backupsOf(service)).off_machine[0];

const warningsOf = async ({ service_id: id }: ServiceAccess): Promise<string> =>
  ((await cloud.get(id)).warnings ?? [])
    .filter(({ code }) => code === 'REPOSITORY')
    .map(({ message }) => message)
    .join();

/** Archived WAL that is not in the repository waits since long ago. */
async function makeLate(service: ServiceAccess): Promise<Date> {
  const then = new Date(Date.now() - LATE_MS);
  const { archive } = pathsOf(service);
  for (const name of await readdir(archive)) await utimes(join(archive, name), then, then);
  return then;
}

const snapshot = (service: ServiceAccess) =>
  takeSnapshot(context.machine, ownerOf(context.machine, pathsOf(service)), pathsOf(service));

const AWAY = '.away';

test.runIf(isServed)(
  'a repository that fails is warned of, and goes on where it ended',
  async () => {
    const service = await cloud.create({ name: 'ledger', service_type: 'POSTGRES' });
    await mkdir(path);
    expect(await cloud.cli('repo', 'add', 'offsite', '--path', path)).toMatchObject({ code: 0 });
    await untilExpected('the repository has a backup', async () =>
      expect((await offMachineOf(service))?.backups.length).toBe(1),
    );
    await execute(service, 'create table ledger (n integer)');

    // The repository's disk is not mounted.
    await rename(path, path + AWAY);
    await switchWal(service);
    const since = await makeLate(service);
    await untilExpected('the service warns of WAL that waits', async () =>
      expect(await warningsOf(service)).toMatch(/ MB of WAL wait\): .*mount its disk/),
    );
    const late = await offMachineOf(service);
    expect(Date.parse(late?.backlog_since ?? '')).toBeLessThanOrEqual(since.getTime());

    // WAL that it has not got is removed, as if it had waited for too long.
    const { archive } = pathsOf(service);
    for (const name of (await readdir(archive)).filter(isWalFile)) await rm(join(archive, name));
    await execute(service, 'insert into ledger values (1)');
    await switchWal(service);
    await untilExpected('the service warns of a WAL gap', async () =>
      expect(await warningsOf(service)).toMatch(/has a gap: nothing after /),
    );
    expect((await offMachineOf(service))?.gaps).toMatchObject([{ before: null }]);

    // A backup of a later snapshot ends the gap, and old backups are removed.
    await rename(path + AWAY, path);
    await snapshot(service);
    await untilExpected('the service has no warning', async () =>
      expect(await warningsOf(service)).toBe(''),
    );
    const now = await offMachineOf(service);
    expect(now).toMatchObject({ backlog_mb: 0, gaps: [{ before: now?.backups[0]?.taken }] });
    await untilExpected('pgBackRest expires old backups', async () =>
      expect(await readFile(commands, 'utf8')).toMatch(/^--no-config expire$/m),
    );
  },
  1_200_000,
);

test.runIf(isServed)(
  'nothing is sent to a repository with another owner',
  async () => {
    const service = await cloud.create({ name: 'other', service_type: 'POSTGRES' });
    await execute(service, 'create table ledger (n integer)');
    await untilExpected('the repository has a backup', async () =>
      expect((await offMachineOf(service))?.backups.length).toBe(1),
    );
    const { stdout } = await cloud.cli('repo', 'kit', 'offsite', '-o', 'json');
    const kit: Schemas['RecoveryKit'] = JSON.parse(stdout);
    const repository = {
      id: 'kit',
      name: 'offsite',
      storage: { type: 'path', directory: path } as const,
      passphrase: kit.passphrase,
    };
    const since = new Date().toISOString();
    const own = (installation: string) =>
      putObject(
        context.program,
        repository,
        'owner.json',
        Buffer.from(JSON.stringify({ installation, host: 'elsewhere', since })),
      );
    await own('another');
    const checked = await cloud.cli('repo', 'check', 'offsite');
    expect(checked.code).not.toBe(0);
    expect(checked.stderr).toContain('belongs to the installation another on elsewhere');
    expect(await offMachineOf(service)).toBeUndefined();
    expect((await cloud.cli('repo', 'show', 'offsite')).stdout).toContain(
      'take the repository over',
    );
    await writeFile(commands, '');
    await execute(service, 'insert into ledger values (1)');
    await switchWal(service);
    await snapshot(service);
    await cloud.request('POST', `/services/${service.service_id}/restart`);
    await cloud.until(service.service_id, 'READY');
    expect(await readFile(commands, 'utf8')).not.toMatch(/archive-push|backup/);
    await own(kit.installation_id);
    expect(await cloud.cli('repo', 'check', 'offsite')).toMatchObject({ code: 0 });
    await untilExpected('the repository has a second backup', async () =>
      expect((await offMachineOf(service))?.backups.length).toBe(2),
    );
  },
  1_200_000,
);
