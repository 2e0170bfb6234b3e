/** One round of a copy: it is observed, and one step is performed. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DATABASE_NAME } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import { type BeginStep, type Seen, type Verdict, EngineUnavailable } from '../../engine.ts';
import { COPY_APPLICATION, MOVE_ROLES, OPERATOR_ROLES } from '../../moves.ts';
import { removeTree } from '../host/clone.ts';
import { currentBoot, writeMarker, readMarker } from '../host/marker.ts';
import { pruneLogs } from '../../postgres/logs.ts';
import { missingFor, type Installation } from '../postgres/installations.ts';
import type { Topology } from '../topology/context.ts';
import { finishRound } from '../topology/driver.ts';
import { stopInstance } from '../topology/start-stop.ts';
import {
  beginBackup,
  endBackup,
  findBaseBackup,
  missingBaseBackup,
  unfinishedOf,
  forgetBackup,
} from './base-backup.ts';
import { COPY_STEPS, decideCopy, type CopyStep } from '../../postgres/decisions/decide-copy.ts';
import { observeCopy, type FoundCopy } from './observe.ts';
import {
  sourceConnection,
  type CopySpec,
  copyFiles,
  forgetLogin,
  readBegun,
  writeBegun,
} from './copy-directory.ts';
import { renameDurably } from '../../../lib/durable-files.ts';
import { run } from '../../../lib/run.ts';
import { writeOwned } from '../backup/running-clone.ts';
import { privileges } from '../host/detached-program.ts';
import { flushFileSystem } from '../host/flush.ts';
import type { InstancePaths } from '../host/layout.ts';
import { type Owner, moveUser } from '../host/users.ts';
import { listEntries, readText, removeEntry, statEntry } from '../../../lib/untrusted-files.ts';
import { readShutdown, readStandbyShutdown } from '../../postgres/data/identity.ts';
import { MAINTENANCE_DATABASE, CONTROL_ROLE } from '../../postgres/roles.ts';
import {
  fence,
  writeConfig,
  makeInstanceDirectories,
  findServer,
  launch,
  whyItEnded,
} from '../postgres/server.ts';
import { clearForSingleUser, runSingleUser } from '../postgres/single-user.ts';
import { findShutdown } from '../../postgres/data/wal-end.ts';
import { findProcess, pauseMs, readOrNull } from '../../../lib/processes.ts';
import { limitSoon } from '../topology/executor.ts';
import { statisticsStatements } from '../../postgres/contents/contents.ts';

const POLL_MS = 500;

/** A step that ends a round in which it begins. */
type Active = Exclude<CopyStep, { kind: 'settled' | 'refuse' | 'wait' | 'begin' }>;

const NAME: Record<Active['kind'], string> = {
  giveUp: COPY_STEPS.copy,
  complete: COPY_STEPS.copy,
  start: COPY_STEPS.start,
  restart: COPY_STEPS.start,
  promote: COPY_STEPS.promote,
  rename: COPY_STEPS.promote,
};

/**
 * Makes one step towards a copy that follows its service, or, by the spec of the service, towards
 * the service that it becomes.
 */
export async function convergeCopy(
  topology: Topology,
  spec: CopySpec,
  begin: BeginStep,
): Promise<Verdict> {
  const { found, seen } = await observeCopy(topology, spec);
  const step = decideCopy(seen);
  const before: Seen = {
    reachable: false,
    present: seen.directory === 'ours',
    // Users have written to the service that it is the data of.
    provisioned: seen.isService,
  };
  switch (step.kind) {
    case 'begin':
    case 'wait':
      return copyData(topology, spec, found, { step, before, begin });
    case 'settled':
    case 'refuse':
      return finishRound(
        { ...round(found, before), decided: { ending: step }, apply: async () => '' },
        begin,
      );
    default:
      return finishRound(
        {
          ...round(found, before),
          decided: { name: NAME[step.kind] },
          apply: () => apply(topology, spec, found, step),
        },
        begin,
      );
  }
}

const round = ({ paths }: FoundCopy, before: Seen) => ({
  before,
  tidy: () => pruneLogs(paths.logs),
  isReachableAfter: () => false,
});

type Copying = Readonly<{
  step: Extract<CopyStep, { kind: 'begin' | 'wait' }>;
  before: Seen;
  begin: BeginStep;
}>;

/** The base backup runs beside the rounds; the step ends with it. */
async function copyData(
  topology: Topology,
  spec: CopySpec,
  found: FoundCopy,
  { step, before, begin }: Copying,
): Promise<Verdict> {
  const progress = step.kind === 'begin' ? 'it begins with a checkpoint' : describe(step);
  await begin(COPY_STEPS.copy, before);
  const again = { did: null, detail: progress, seen: before, outcome: 'again' } as const;
  try {
    if (step.kind === 'begin') await beginData(topology, spec, found);
    else await begin(COPY_STEPS.copy, before, progress);
    return { ...again, waitMs: POLL_MS };
  } catch (error) {
    const reason = messageOf(error);
    const did = COPY_STEPS.copy;
    const failed = { did, detail: reason, seen: before, outcome: 'failed' } as const;
    return { ...failed, reason: `${did}: ${reason}` };
  }
}

function describe({ doneBytes, totalBytes }: { doneBytes: number; totalBytes: number }): string {
  const mb = (bytes: number): string => `${(bytes / 1e6).toFixed(0)} MB`;
  if (totalBytes === 0) return 'it begins with a checkpoint';
  return `${mb(doneBytes)} of ${mb(totalBytes)}`;
}

async function beginData(
  { machine, renewEgress }: Topology,
  spec: CopySpec,
  { paths, owner, installation, marker, followed }: FoundCopy,
): Promise<void> {
  const { usable } = machine.installations;
  if (installation === null || marker === null || followed === null)
    throw new Error(missingFor(usable, spec.addons, spec.major));
  const program = findBaseBackup(usable, installation.major);
  if (program === null) throw new Error(missingBaseBackup(installation.major));
  await renewEgress();
  // From before the machine went down: see backupOf.
  await writeMarker(paths, { ...marker, madeIn: await currentBoot() });
  const source = sourceConnection(paths, followed, `${COPY_APPLICATION}_base`);
  await beginBackup(machine, spec, paths, owner, { program, source });
}

/** @returns a line for the user */
async function apply(
  topology: Topology,
  spec: CopySpec,
  found: FoundCopy,
  step: Active,
): Promise<string> {
  const { machine, executor } = topology;
  const { paths, owner, installation, server } = found;
  switch (step.kind) {
    case 'giveUp':
      await endBackup(paths);
      await removeTree(unfinishedOf(paths), machine.cloneMethod);
      throw new Error(step.why);
    case 'complete':
      if (installation === null)
        throw new Error(missingFor(machine.installations.usable, spec.addons, spec.major));
      await completeData(paths, owner, installation.major);
      return `${(step.bytes / 1e6).toFixed(0)} MB`;
    case 'start':
      return startCopy(topology, spec, found);
    case 'restart':
      if (server !== null) await stopInstance(executor, spec.id, paths, server, 'fast');
      return startCopy(topology, spec, found);
    case 'promote':
      return becomeService(topology, spec, found);
    case 'rename':
      return renameCopy(topology, spec);
  }
}

// Makes the files of a base backup the data of a standby. They are of another machine: input.

/**
 * Files of the other region's server that a server of ours does not read: its own configuration is
 * outside of the data. Without them, nobody is misled.
 */
const OF_THE_SOURCE = [
  'postgresql.conf',
  'custom.conf',
  'override.conf',
  'pg_hba.conf',
  'pg_ident.conf',
  'recovery.signal',
  'backup_label.old',
];

/** Even a million files take less. */
const CLOSED_WITHIN_MS = 600_000;

/**
 * @param major the version of the PostgreSQL that it gets
 * @throws Error when it is not the data of such a server, or lies in several places
 */
async function completeData(
  paths: InstancePaths,
  owner: Owner | null,
  major: number,
): Promise<void> {
  const data = unfinishedOf(paths);
  const version = readText(join(data, 'PG_VERSION'))?.trim() ?? 'no';
  if (version !== String(major))
    throw new Error(
      `its data is of ${version} version of PostgreSQL, and PostgreSQL ${major} runs it`,
    );
  if (statEntry(join(data, 'pg_wal'))?.isDirectory() !== true)
    throw new Error('its WAL is not in its data directory');
  if ((await listEntries(join(data, 'pg_tblspc'))).length > 0)
    throw new Error('it has tablespaces, which are outside of its data directory; drop them first');
  await closeToOthers(data, owner);
  for (const name of OF_THE_SOURCE) await removeEntry(join(data, name));
  // Settings of the source would take precedence over ours.
  await writeOwned(owner, join(data, 'postgresql.auto.conf'), '');
  await writeOwned(owner, join(data, 'standby.signal'), '');
  await flushFileSystem(paths.root);
  await renameDurably(data, paths.data);
  await forgetBackup(paths);
}

/** The other region may have let others read files. The user of the copy owns all of them. */
async function closeToOthers(data: string, owner: Owner | null): Promise<void> {
  const open = [data, '-xdev', '!', '-type', 'l', '-perm', '/077'];
  const close = ['-execdir', 'chmod', 'go-rwx,-s', '{}', '+'];
  const [program = '', ...words] = [...privileges(owner), 'find', ...open, ...close];
  await run(program, words, {
    env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin' },
    deadlineMs: CLOSED_WITHIN_MS,
  });
}

// Makes a copy the service. Every step can be repeated, and a crash at any point goes on:
//
// 1. The copy has replayed the shutdown of its service: its server is stopped, and its control file
//    names that record as its last checkpoint. Only then a file says that the promotion has begun,
//    the copy may connect nowhere any more, and it is no standby any more.
// 2. PostgreSQL in single-user mode makes the superuser of this machine and closes the roles of the
//    other region. Nobody else can have a session meanwhile. It ends with a checkpoint.
// 3. The marker says that it is provisioned, and its directory becomes that of the service.
//
// The server goes on with the timeline of its service. The archive of this machine begins empty
// with this server, and its first snapshot comes after the promotion: no file of another server has
// the name of one of its own. Without a new timeline, a promotion that was interrupted is repeated
// as any recovery from a crash is.

/** Recovery, if it was interrupted before: the whole WAL since its last checkpoint. */
const SINGLE_USER_MS = 1_800_000;

type Parts = Pick<Topology, 'machine' | 'executor' | 'renewEgress'>;

/**
 * @returns a line for the user
 * @throws EngineUnavailable when it has not replayed all yet: its server runs on, or is started
 */
async function becomeService(topology: Parts, spec: CopySpec, found: FoundCopy): Promise<string> {
  const { machine, renewEgress } = topology;
  const { paths, installation, marker } = found;
  if (installation === null || marker === null)
    throw new Error(missingFor(machine.installations.usable, spec.addons, spec.major));
  const begunMs = Date.now();
  const shutdown = readBegun(paths) ?? (await endFollowing(topology, spec, found));
  // In this order: what it may connect to ends before anything of its data can run.
  await forgetLogin(paths);
  await renewEgress();
  await removeEntry(join(paths.data, 'standby.signal'));
  await makeService(topology, spec, found, installation);
  const end = await readShutdown(paths.data);
  if (end === null || end <= shutdown)
    throw new Error('PostgreSQL in single-user mode did not shut down in order');
  await writeMarker(paths, { ...marker, provisioned: true, madeIn: await currentBoot() });
  return `in ${Date.now() - begunMs} ms`;
}

/** @returns the position of the shutdown of its service, which it has replayed */
async function endFollowing(topology: Parts, spec: CopySpec, found: FoundCopy): Promise<bigint> {
  const { executor } = topology;
  const { paths, server } = found;
  if (server !== null) await stopInstance(executor, spec.id, paths, server, 'fast');
  if (!(await fence(paths))) throw new Error('its server does not end');
  const shutdown = await findShutdown(paths.data);
  if (shutdown === null) throw new Error('its WAL does not end with the shutdown of its service');
  if ((await readStandbyShutdown(paths.data)) !== shutdown) {
    await startCopy(topology, spec, found);
    throw new EngineUnavailable('it has not replayed all WAL yet');
  }
  await writeBegun(paths, shutdown);
  return shutdown;
}

/** Runs the SQL of a promotion. @throws Error with the reason of PostgreSQL */
async function makeService(
  { machine }: Parts,
  spec: CopySpec,
  { paths, owner }: FoundCopy,
  installation: Installation,
): Promise<void> {
  await clearForSingleUser(paths);
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), '');
  await writeConfig(owner, paths, copyFiles(spec, paths, { installation, owner }, null));
  const data = { paths, owner, installation, size: spec.size, deadlineMs: SINGLE_USER_MS };
  const run = (database: string, statements: readonly string[]) =>
    runSingleUser(machine, data, database, statements);
  // The owner of the database may have the extension, or have dropped the database.
  await run(DATABASE_NAME, databaseSql()).catch(() => undefined);
  if (!(await run(MAINTENANCE_DATABASE, serviceSql())).includes(`"${DONE}"`))
    throw new Error('PostgreSQL in single-user mode did not perform all statements');
}

/** Gives a promoted copy the name of the service. Its user goes along. @returns a line */
async function renameCopy(
  { machine }: Pick<Topology, 'machine'>,
  { id }: CopySpec,
): Promise<string> {
  const { layout, isolation } = machine;
  const [from, to] = [layout.copy(id), layout.service(id)];
  const uid = (await readMarker(from))?.uid ?? null;
  // First: the user of a directory that is gone is given to another service.
  if (isolation.isolated && uid !== null) await moveUser(isolation.users, uid, to.root);
  await renameDurably(from.root, to.root);
  return 'it is the service';
}

// Starts and stops the server of a copy, which follows its service.

/**
 * A server that cannot start ends within moments, and the next round finds it if it takes longer.
 * The round is free for what a user changes meanwhile.
 */
const STARTED_WITHIN_MS = 3000;

/** Starts the server of a copy, with the desired files. @returns a line for the user */
async function startCopy(
  { machine, executor }: Pick<Topology, 'machine' | 'executor'>,
  spec: CopySpec,
  { paths, owner, installation, followed }: FoundCopy,
): Promise<string> {
  if (installation === null)
    throw new Error(missingFor(machine.installations.usable, spec.addons, spec.major));
  if (!(await fence(paths))) throw new Error('its server does not end');
  await makeInstanceDirectories(owner, paths);
  // The service may have moved since: the copy follows by what it was given last.
  if (followed !== null)
    await writeConfig(owner, paths, copyFiles(spec, paths, { installation, owner }, followed));
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), '');
  const begunMs = Date.now();
  await launch(machine, owner, paths, installation.bin, spec);
  while (Date.now() - begunMs < STARTED_WITHIN_MS) {
    const pid = Number((await readOrNull(paths.pidFile)) ?? '0');
    if (pid !== 0 && (await findProcess(pid)) === null)
      throw new Error(`PostgreSQL did not start: ${await whyItEnded(paths, begunMs)}`);
    const server = await findServer(paths);
    if (server?.port != null) {
      limitSoon(executor, spec.id, spec, server);
      return `PostgreSQL ${installation.version}`;
    }
    await sleep(pauseMs(begunMs));
  }
  return 'it is starting';
}

// SQL that makes the data of a service of Kubernetes that of a service of this machine. It runs in
// single-user mode: no session of another exists, and no setting or trigger of a database or role
// holds there. Each statement can be repeated.

const MADE = 'superuser createdb createrole replication bypassrls login';

/**
 * The superuser of this machine. A tenant cannot make a superuser: a role of this name that is none
 * is a tenant's, and gets another name, since what owns it could become it.
 */
const CONTROL = `do $body$
  declare other text := 'former_${CONTROL_ROLE}';
  begin
    if exists (select from pg_authid where rolname = '${CONTROL_ROLE}' and not rolsuper) then
      for n in 1 .. 1000000 loop
        exit when not exists (select from pg_authid where rolname = other);
        other := format('former_${CONTROL_ROLE}_%s', n);
      end loop;
      execute format('alter role ${CONTROL_ROLE} rename to %I', other);
    end if;
    if not exists (select from pg_authid where rolname = '${CONTROL_ROLE}') then
      create role ${CONTROL_ROLE} ${MADE};
    end if;
    alter role ${CONTROL_ROLE} ${MADE} connection limit -1 password null valid until 'infinity';
    alter role ${CONTROL_ROLE} reset all;
  end $body$`;

/**
 * Nobody may log in as a role of CloudNativePG or of the control plane there. If nobody has been
 * granted it, it is none of a tenant's: it is dropped if nothing depends on it. pg_checkpoint shows
 * that another one is ours: no tenant can grant it.
 */
const closeRole = (name: string): string => `do $body$
  begin
    if not exists (select from pg_authid where rolname = '${name}') then return; end if;
    alter role ${name} nologin noreplication password null;
    if exists (select from pg_authid where rolname = '${name}' and rolsuper)
       or exists (select from pg_auth_members where roleid = '${name}'::regrole) then
      return;
    end if;
    begin
      drop owned by ${name};
      drop role ${name};
    exception when others then
      grant pg_checkpoint to ${name};
    end;
  end $body$`;

/** The text that it prints at its end. */
const DONE = 'howdah has promoted it';

/**
 * The extension that services of this machine have in the database of users, and others lack. It
 * fails where a tenant has the extension already.
 */
export const databaseSql = (): readonly string[] => statisticsStatements();

/** The roles of a service of this machine. */
export function serviceSql(): readonly string[] {
  const closed = [...MOVE_ROLES, ...OPERATOR_ROLES].map(closeRole);
  return [CONTROL, ...closed, `select '${DONE}' as done`];
}
