/**
 * Performs the step that `decide` has chosen. Each step can be interrupted at any point and
 * repeated.
 */
import { ADMIN_ROLE } from '@howdah/contract';
import type { ShowProgress } from '../../engine.ts';
import { setAside } from '../backup/aside-data.ts';
import { forgetRecovery } from '../backup/recovery.ts';
import { discard } from '../host/clone.ts';
import type { InstancePaths } from '../host/layout.ts';
import { enforceLimits, isCpuBoundCurrent } from '../host/limits.ts';
import { writeMarker } from '../host/marker.ts';
import { Refused } from '../../not-yet.ts';
import { ownService } from '../host/ownership.ts';
import { ownerOf } from '../host/users.ts';
import { endSessions } from '../../postgres/sessions/disallowed-sessions.ts';
import type { Listener } from '../network/listener.ts';
import { updateContents } from '../../postgres/contents/contents.ts';
import { readControlFiles } from '../postgres/extension-files.ts';
import { judge, extensionsOf } from '../../../domain/postgres/extension-rules.ts';
import { createExtension, dropExtension } from '../../postgres/contents/extension-sql.ts';
import type { ConfigFiles } from '../postgres/files.ts';
import { alterPassword } from '../../postgres/sessions/password.ts';
import { missingFor, type Installation } from '../postgres/installations.ts';
import { reread } from '../postgres/configuration-reload.ts';
import { makeInstanceDirectories, writeConfig } from '../postgres/server.ts';
import {
  launchPooler,
  reloadPooler,
  holdPooler,
  stopPooler,
  MISSING_POOLER,
  type PoolerPlan,
  type PoolerServers,
} from '../proxy/pooler.ts';
import {
  configure,
  issueCertificate,
  cloneParent,
  recoverInstance,
  cloneTemplate,
  isConverted,
  untilOnDisk,
  type NewInstance,
} from './make-instance.ts';
import type { ActiveStep } from '../../postgres/decisions/decide.ts';
import { converting, copying, type Executor, type Found } from './executor.ts';
import { assertPortIsFree, startServer, stopInstance } from './start-stop.ts';
import { beginsWithData, type PlacedSpec } from '../../postgres/decisions/placed-spec.ts';
import { cloneBeside } from './reset.ts';
import { convertInPlace, exchangeData } from './upgrade.ts';
import type { Topology } from './context.ts';
import { startStandby, writeReplication } from './standbys.ts';

type StepOf<Kind extends ActiveStep['kind']> = Extract<ActiveStep, { kind: Kind }>;

/** The observed state of an instance whose PostgreSQL is installed. */
type Installed = Found & {
  readonly installation: Installation;
  readonly files: ConfigFiles;
  readonly filesAs: NonNullable<Found['filesAs']>;
};

/**
 * Performs a step.
 *
 * @param show shows how far it is
 * @returns a line for the user
 * @throws NotYet when the step has to wait
 */
export async function applyStep(
  executor: Executor,
  spec: PlacedSpec,
  step: ActiveStep,
  found: Found,
  show: ShowProgress = () => undefined,
): Promise<string> {
  const { machine } = executor;
  const { installation, files, filesAs } = found;
  if (installation === null || files === null || filesAs === null)
    throw new Error(missingFor(machine.installations.usable, spec.addons, spec.major));
  const installed: Installed = { ...found, installation, files, filesAs };
  switch (step.kind) {
    case 'makeTemplate':
    case 'discard':
    case 'clone':
    case 'fork':
    case 'setAside':
    case 'recover':
    case 'convert':
    case 'cloneBeside':
    case 'exchange':
    case 'own':
    case 'writeFiles':
      return applyToDirectory(executor, spec, step, installed, show);
    case 'connect':
    case 'limit':
    case 'renewCertificate':
    case 'reload':
    case 'updateContents':
    case 'createExtension':
    case 'dropExtension':
    case 'endSessions':
    case 'setFirstPassword':
      return applyToServer(executor, spec, step, installed);
    case 'startPooler':
    case 'reloadPooler':
    case 'stopPooler':
      return applyToPooler(executor, spec, step, found);
    case 'openRelay':
      if (found.relay === null) throw new Error('its relay is not planned');
      if (found.relayView === null) {
        const { address, port } = found.relay.listen;
        await assertPortIsFree(found.listener, address, port);
      }
      await executor.relays.open(found.relay, step.state, found.relayView?.state ?? null);
      return step.state === 'awake' ? 'clients are connected' : `clients wait: ${step.state}`;
    case 'closeRelay':
      await executor.relays.close(spec.id);
      return 'it is not needed any more';
    case 'start': {
      const start = () => startServer(executor, spec, found);
      const isNewFork = beginsWithData(spec) && found.marker?.provisioned !== true;
      return withProblem(found, await (isNewFork ? executor.forkLimit(start) : start()));
    }
    case 'stop': {
      const { key, paths, server, pooler } = found;
      // The server starts again: clients of the pooler wait for it.
      if (step.mode === 'fast' && spec.power === 'running' && pooler !== null)
        await holdPooler(executor.poolers, machine.layout.service(spec.id));
      if (server !== null) await stopInstance(executor, key, paths, server, step.mode);
      return step.why;
    }
  }
}

/** The line of a start, with the reason why a client could not have the server started. */
function withProblem({ relayView }: Found, line: string): string {
  const problem = relayView?.problem ?? null;
  return problem === null ? line : `${line}; when a client came, ${problem}`;
}

/** Steps at the directory of an instance that does not run, or that they stop. */
async function applyToDirectory(
  executor: Executor,
  spec: PlacedSpec,
  step: StepOf<
    | 'makeTemplate'
    | 'discard'
    | 'clone'
    | 'fork'
    | 'setAside'
    | 'recover'
    | 'convert'
    | 'cloneBeside'
    | 'exchange'
    | 'own'
    | 'writeFiles'
  >,
  found: Installed,
  show: ShowProgress,
): Promise<string> {
  const { machine, templates } = executor;
  const { paths, installation, filesAs, listener } = found;
  const instance: NewInstance = { spec, paths, installation, filesAs, listener };
  switch (step.kind) {
    case 'makeTemplate':
      await templates.ensure(installation, extensionsOf(spec.addons));
      return `for PostgreSQL ${installation.version}, once for all services like this one`;
    case 'discard':
      // The backups stay: the service is restored from them again.
      await discard(machine, spec.id, spec.recovery === null ? paths.root : paths.data);
      return `the machine went down before it was on the disk, \
and before anybody could write to it`;
    case 'clone':
      return cloneTemplate(executor, instance);
    case 'fork': {
      const fork = () => cloneParent(executor, instance, step.origin, show);
      if (isConverted(executor, instance, step.origin)) return converting(executor, fork);
      // A transfer may take hours: it keeps no place of the forks that are clones.
      if (step.origin.repository !== undefined) return copying(executor, fork);
      return machine.cloneMethod === 'copy' ? copying(executor, fork) : executor.forkLimit(fork);
    }
    case 'setAside':
      return setAside(machine, spec.id, step.recovery.id);
    case 'recover':
      return copying(executor, () => recoverInstance(executor, instance, step.recovery, show));
    case 'convert':
      return convertInPlace(executor, instance, step.upgrade);
    case 'cloneBeside':
      return cloneBeside(executor, instance, step.upgrade, step.origin, show);
    case 'exchange':
      return exchangeData(executor, instance, step.upgrade);
    case 'own':
      return ownService(machine, spec.id, null);
    case 'writeFiles':
      await configure(executor, found);
      return 'settings follow from the size';
  }
}

/** Steps at a running server. */
async function applyToServer(
  executor: Executor,
  spec: PlacedSpec,
  step: StepOf<
    | 'connect'
    | 'limit'
    | 'renewCertificate'
    | 'reload'
    | 'updateContents'
    | 'createExtension'
    | 'dropExtension'
    | 'endSessions'
    | 'setFirstPassword'
  >,
  found: Installed,
): Promise<string> {
  const { machine, monitor, unlimited, issuer } = executor;
  const { key, paths, server, files, listener, listen, heartbeat } = found;
  const owner = ownerOf(machine, paths);
  switch (step.kind) {
    case 'connect':
      await monitor.connect(key, paths, listen.port, heartbeat);
      await rereadFiles(executor, key);
      if (server !== null) await enforceLimits(machine, key, spec, server.postmaster.pid);
      return 'over the Unix socket';
    case 'limit':
      if (server !== null) await enforceLimits(machine, key, spec, server.postmaster.pid);
      unlimited.delete(key);
      return 'now that it can be done';
    case 'renewCertificate':
      await writeConfig(owner, paths, await issueCertificate(issuer, listener));
      if (server !== null) await reread(monitor, key, server);
      return 'running sessions keep the one they began with';
    case 'reload':
      await makeInstanceDirectories(owner, paths);
      await writeConfig(owner, paths, files);
      if (server !== null) await reread(monitor, key, server);
      if (server !== null && !isCpuBoundCurrent(machine, key, spec))
        await enforceLimits(machine, key, spec, server.postmaster.pid);
      return 'without a restart';
    case 'updateContents':
      await updateContents({ paths, port: listen.port });
      return 'as this release has them';
    case 'createExtension':
    case 'dropExtension':
      return changeExtension(spec.extension, found);
    case 'endSessions':
      return `${await endSessions(monitor, key, listener.allowedNetworks)} ended`;
    case 'setFirstPassword':
      return setFirstPassword(executor, spec, step.verifier, found);
  }
}

/** @throws Error when it is not installed or not allowed any more, or PostgreSQL refuses it */
async function changeExtension(
  wanted: PlacedSpec['extension'],
  { paths, listen, installation }: Installed,
): Promise<string> {
  if (wanted === null) return 'nothing was asked for';
  const at = { paths, port: listen.port };
  if (wanted.wanted === 'dropped') return dropExtension(at, wanted.name);
  const control = (await readControlFiles(installation)).find(({ name }) => name === wanted.name);
  if (control === undefined) throw new Refused(`${wanted.name} is not installed any more`);
  const { allowed, reason } = judge(control);
  if (!allowed) throw new Refused(reason);
  return createExtension(at, control);
}

/** The last step of a create: from here on the service is provisioned. */
async function setFirstPassword(
  executor: Executor,
  spec: PlacedSpec,
  verifier: string,
  found: Installed,
): Promise<string> {
  const { key, paths, marker, installation } = found;
  await untilOnDisk(executor, paths);
  // Restored data has the password of its last moment. That of another installation gets a new one.
  const keepsPassword = spec.recovery !== null && spec.recovery.of === undefined;
  if (!keepsPassword) await executor.monitor.query(key, alterPassword(verifier));
  if (beginsWithData(spec)) await forgetRecovery(ownerOf(executor.machine, paths), paths);
  await writeMarker(paths, {
    id: spec.id,
    installation: marker?.installation ?? installation.name,
    provisioned: true,
    parent: null,
    began: marker?.began ?? null,
    madeIn: marker?.madeIn ?? '',
    uid: marker?.uid ?? null,
    userOf: null,
    recovery: marker?.recovery ?? null,
    upgrade: marker?.upgrade ?? null,
    exchange: null,
  });
  if (beginsWithData(spec)) await openListener(executor, found);
  return keepsPassword ? 'not changed: the restored data has it' : `for ${ADMIN_ROLE}`;
}

/**
 * Opens the listener of a fork that was just provisioned. If this is interrupted, the next
 * observation finds its files out of date, or the next connect rereads them.
 */
async function openListener(
  { machine, monitor }: Executor,
  { key, paths, server, filesOnceProvisioned }: Found,
): Promise<void> {
  if (server === null || filesOnceProvisioned === null) return;
  await writeConfig(ownerOf(machine, paths), paths, filesOnceProvisioned);
  await reread(monitor, key, server);
}

/**
 * Has a server read its files: an earlier control plane may have written them and died before the
 * reload.
 */
async function rereadFiles({ monitor }: Executor, key: string): Promise<void> {
  try {
    await monitor.query(key, 'select pg_reload_conf()');
  } catch (error) {
    // A server that is not connected gets the step again.
    monitor.forget(key);
    throw error;
  }
}

async function applyToPooler(
  executor: Executor,
  spec: PlacedSpec,
  step: StepOf<'startPooler' | 'reloadPooler' | 'stopPooler'>,
  { paths, listener, listen, pooler }: Found,
): Promise<string> {
  const service = executor.machine.layout.service(spec.id);
  const servers = {
    primary: { paths, port: listen.port },
    untilReplayed: () => Promise.resolve(), // it connects to the primary itself
  };
  switch (step.kind) {
    case 'startPooler':
      return startPooler(executor, spec.id, service, listener, pooler, servers);
    case 'reloadPooler':
      return reloadPooler(executor.poolers, spec.id, service, planOrThrow(pooler), servers);
    case 'stopPooler':
      await stopPooler(executor.poolers, service);
      return step.why;
  }
}

/** Starts a pooler, once its port is free. @returns a line for the user */
export async function startPooler(
  { poolers }: Executor,
  id: string,
  service: InstancePaths,
  listener: Listener,
  pooler: PoolerPlan | null,
  servers: PoolerServers,
): Promise<string> {
  const plan = planOrThrow(pooler);
  await assertPortIsFree(listener, listener.address, plan.port);
  return launchPooler(poolers, id, service, plan, servers);
}

/** @throws Error when PgBouncer is not installed */
export function planOrThrow(pooler: PoolerPlan | null): PoolerPlan {
  if (pooler === null) throw new Error(MISSING_POOLER);
  return pooler;
}

// Performs the steps of a server of a cluster or a set: its replication settings are a file.

/** Writes the replication settings of a server before a step that has it read its files. */
export async function writeReplicationFor(
  { executor }: Topology,
  step: ActiveStep,
  found: Found,
  conf: string,
): Promise<void> {
  if (step.kind === 'writeFiles' || step.kind === 'reload')
    await writeReplication(executor, found, conf);
}

/** Performs a step of a server that follows. If it does not start, it is seeded again. */
export async function applyToStandby(
  { executor, standbys }: Topology,
  spec: PlacedSpec,
  step: ActiveStep,
  found: Found,
): Promise<string> {
  const apply = () => applyStep(executor, spec, step, found);
  return step.kind === 'start' ? startStandby(standbys, found.key, apply) : apply();
}
