/** A service, and a repository that its backups are shipped to and fetched from. */
import { chmod, chown, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { expect } from 'vitest';
import {
  copyWalFrom,
  fetchBackup,
  forkRecoveryConf,
  materialise,
  type OffMachine,
  ship,
  type ShipContext,
  type ShipPolicy,
  takeBackup,
} from '../test-repositories/probe.ts';
import { connectTo, install, type Installation } from './harness.ts';
import { hurried } from './tuning.ts';
import type { Service } from './harness-caller.ts';
import {
  findPgBackRest,
  findServer,
  ownerOf,
  prepareMachine,
  removeTree,
  type Repository,
  RepositoryProblem,
  signal,
  type Storage,
  writeText,
} from './probe.ts';
import { until } from './until.ts';

export let cloud: Installation;
export let context: ShipContext;
/** A directory for repositories. */
export let place: string;

export type ServiceAccess = Service & { initial_password: string };

/** A backup is due with every new snapshot. */
export const POLICY: ShipPolicy = {
  fullEveryMs: 7 * 86_400_000,
  backupEveryMs: 1,
};

export const NEVER = new AbortController().signal;

export async function setUp(settings: Record<string, string> = {}): Promise<void> {
  cloud = await install({
    HOWDAH_SNAPSHOT_HOURS: '0.001',
    ...hurried(),
    ...settings,
  });
  const program = await findPgBackRest();
  if (program === null) throw new Error('no pgBackRest');
  context = { machine: await prepareMachine(cloud.home), program };
  place = await mkdtemp(join(tmpdir(), 'hd-repository-'));
  await chmod(place, 0o755);
}

export async function tearDown(): Promise<void> {
  await rm(place, { recursive: true, force: true });
  expect(await cloud.destroy()).toEqual([]);
}

export function repositoryAt(storage: Storage, passphrase = 'a passphrase of a test'): Repository {
  return { id: storage.type, name: 'offsite', storage, passphrase };
}

/** A new repository in a directory. */
export async function newDirectory(name: string): Promise<Repository> {
  const directory = join(place, name);
  await mkdir(directory, { mode: 0o700 });
  const { user } = context.program;
  if (user !== null) await chown(directory, user.uid, user.gid);
  return repositoryAt({ type: 'path', directory });
}

/** More than any test needs. */
const MAX_ROUNDS = 50;

/** Ships all that there is. */
export async function shipAll(
  service: Service,
  repository: Repository,
  by = context,
): Promise<OffMachine> {
  const shipment = {
    context: by,
    id: service.service_id,
    upgrade: null,
    repository,
    policy: POLICY,
    signal: NEVER,
  };
  for (let rounds = 0; ; rounds++) {
    const { state, more, isBackupDue } = await ship(shipment);
    // A file may be archived in the moment after the last one was sent (archive_timeout).
    const isDone = state.problem !== null || state.backlog.files === 0 || rounds > MAX_ROUNDS;
    if (!more && !isBackupDue && isDone) return state;
    if (!isBackupDue) continue;
    try {
      await takeBackup(shipment, 'due', async (_, work) => void (await work(() => undefined)));
    } catch (error) {
      if (!(error instanceof RepositoryProblem)) throw error;
      return (await ship(shipment)).state;
    }
  }
}

export const pathsOf = (service: Service) => context.machine.layout.service(service.service_id);

/** Ends a WAL segment of a service, and waits until it is archived. */
export async function switchWal(service: ServiceAccess): Promise<void> {
  const control = new Client({
    host: pathsOf(service).socket,
    port: service.endpoint.port,
    user: 'howdah',
    database: 'postgres',
  });
  await control.connect();
  try {
    const { rows } = await control.query<{ name: string }>(
      'select pg_walfile_name(pg_switch_wal()) as name',
    );
    const archived = async () =>
      (
        await control.query<{ last: string }>(
          'select last_archived_wal as last from pg_stat_archiver',
        )
      ).rows[0]?.last ?? '';
    const name = rows[0]?.name ?? '';
    await until(`${name} is archived`, async () => (await archived()) >= name);
  } finally {
    await control.end();
  }
}

export async function execute(service: ServiceAccess, sql: string): Promise<unknown[]> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    return (await client.query<Record<string, unknown>>(sql)).rows;
  } finally {
    await client.end();
  }
}

/** Loses all of a service but its rows in the metadata database, as the loss of a disk would. */
export async function loseService(service: Service): Promise<void> {
  await cloud.stop('SIGKILL');
  const paths = pathsOf(service);
  const server = await findServer(paths);
  if (server !== null) {
    signal(server.postmaster.pid, 'SIGKILL');
    await until('the server is gone', async () => (await findServer(paths)) === null);
  }
  const marker = await readFile(paths.marker, 'utf8');
  const owner = ownerOf(context.machine, paths);
  await removeTree(paths.root, context.machine.cloneMethod);
  await mkdir(paths.root, { mode: 0o710 });
  if (owner !== null) await chown(paths.root, 0, owner.gid);
  await writeFile(paths.marker, marker);
}

/** Fetches a lost service, and lets the control plane start it. */
export async function recoverService(
  service: Service,
  repository: Repository,
  by = context,
): Promise<void> {
  const { machine } = context;
  const paths = pathsOf(service);
  const lines: string[] = [];
  const { snapshot } = await fetchBackup(
    by,
    service.service_id,
    repository,
    paths,
    ownerOf(by.machine, paths),
    'newest',
    (line) => lines.push(line),
    NEVER,
  );
  expect(lines.at(-1)).toMatch(/^\d+ WAL files$/);
  const owner = ownerOf(machine, paths);
  await materialise(machine, owner, paths, snapshot, paths.data);
  await copyWalFrom(machine, owner, paths, snapshot.firstWal, paths.data);
  await writeText(join(paths.data, 'postgresql.auto.conf'), forkRecoveryConf(null), owner);
  await writeText(join(paths.data, 'recovery.signal'), '', owner);
  await cloud.up();
  await cloud.until(service.service_id, 'READY');
}

/**
 * pgBackRest that is killed 50 ms after its n-th command has begun, once; before, and after that,
 * it is as it is.
 */
export async function killedAt(
  n: number,
): Promise<{ by: ShipContext; isDone: () => Promise<boolean> }> {
  const directory = await mkdtemp(join(place, 'killed-'));
  const { program, user } = context.program;
  const script = join(directory, 'pgbackrest');
  const left = join(directory, 'left');
  await writeFile(left, String(n));
  await writeFile(
    script,
    `#!/bin/sh
n=$(cat ${left}); n=$((n - 1)); echo $n >${left}
[ $n = 0 ] || exec ${program} "$@"
${program} "$@" &
sleep 0.05; kill -KILL $!; wait $!; exit 137
`,
    { mode: 0o755 },
  );
  if (user !== null) for (const path of [directory, left]) await chown(path, user.uid, user.gid);
  await chmod(directory, 0o755);
  return {
    by: { ...context, program: { ...context.program, program: script } },
    isDone: async () => Number(await readFile(left, 'utf8')) > 0,
  };
}
