/** Takes the steps that {@link decide} decides on. Every one may be interrupted at any point and taken again. */
import { join } from 'node:path';
import pLimit from 'p-limit';
import { ADMIN_ROLE, type Size } from '@howdah/contract';
import type { CertificateIssuer } from '../../../lib/tls.ts';
import type { Origin, ServiceSpec } from '../../engine.ts';
import { forgetRecovery, recoverOn } from '../backup/recovery.ts';
import { forkData } from '../backup/fork.ts';
import { recordInitialSnapshot } from '../backup/snapshots.ts';
import { NotYet } from '../host/not-yet.ts';
import { assertSpaceFor, cloneTree, discard, removeTree } from '../host/clone.ts';
import type { Step } from './decide.ts';
import type { ConfigFiles } from '../postgres/files.ts';
import { flushOf } from '../host/flush.ts';
import { hostsOf, type Listener } from '../network/listener.ts';
import { wasShutDown, writeSystemIdentifier } from '../postgres/identity.ts';
import { missingFor, type Installation } from '../postgres/installations.ts';
import { instancePaths, memberKey, type InstancePaths } from '../host/layout.ts';
import { enforceLimits, liftWriteLimit } from '../host/limits.ts';
import type { Machine, Owner } from '../host/machine.ts';
import { currentBoot, readMarker, writeMarker, type Marker } from '../host/marker.ts';
import type { Heartbeat, Monitor } from '../postgres/monitor.ts';
import { assertPlace } from '../network/networks.ts';
import { mkdir, rename, rm } from '../host/root-files.ts';
import { endSessions } from '../network/disallowed-sessions.ts';
import {
  MISSING_POOLER,
  type PoolerPlan,
  type Poolers,
  type PoolerServers,
} from '../proxy/pooler.ts';
import {
  findServer,
  launch,
  makeInstanceDirectories,
  portIsFree,
  stopServer,
  waitUntilReady,
  whyItEnded,
  writeConfig,
  type Server,
  type StopMode,
} from '../postgres/server.ts';
import { reread } from '../postgres/reread.ts';
import type { Precloned } from '../postgres/precloned.ts';
import { extensionsOf, type Templates } from '../postgres/templates.ts';
import { newOwner, ownService } from '../host/own.ts';
import { isFile } from '../host/service-files.ts';
import { ownerOf, SERVICE_USER } from '../host/users.ts';

/** How long a server may take to be ready before its start is reported as going on. */
const START_PATIENCE_MS = 3000;
const STOP_PATIENCE_MS = 60_000;
/**
 * Forks that are cloned, or begin to recover, at the same time: all of them flush the disk on which their parents' transactions wait as well. Ten at once on
 * btrfs are ready after 9 s by twos and after 10 s side by side, and the slowest transaction of their parent takes 4 s and 7 s (bench fork-load, two cores).
 */
const FORKS_AT_A_TIME = 2;
/** Data directories that are copied byte by byte at the same time; each may take hours, and one of the reconciler's places. */
const COPIES_AT_A_TIME = 6;
/** A clone of a template takes at most this much. */
const CLONE_BYTES = 80e6;

/** What was found of a server on this machine. */
export type Found = {
  /** By which the monitor and the limits know it. */
  key: string;
  paths: InstancePaths;
  listen: { address: string; port: number };
  listener: Listener;
  heartbeat: Heartbeat;
  marker: Marker | null;
  server: Server | null;
  installation: Installation | null;
  /** Those that it is to have now. */
  files: ConfigFiles | null;
  /** Those of a server that runs as another user, for one that is about to get it. */
  filesAs: ((owner: Owner | null) => ConfigFiles) | null;
  /** The files once it is provisioned; they differ from the current ones only for a fork that is not provisioned yet. */
  filesOnceProvisioned: ConfigFiles | null;
  /** Of the service's pooler, if this is the server that it stands before. */
  pooler: PoolerPlan | null;
};

/** What the executor of the engine work with. */
export type Tools = {
  machine: Machine;
  templates: Templates;
  precloned: Precloned;
  monitor: Monitor;
  issuer: CertificateIssuer;
  poolers: Poolers;
};

/** The executor of the engine. */
export function createExecutor({ machine, templates, precloned, monitor, issuer, poolers }: Tools) {
  /** Servers that are being held to their size, and those where that did not work: the next look sees to them. */
  const limiting = new Map<string, Promise<void>>();
  const unlimited = new Set<string>();
  const inTurn = pLimit(FORKS_AT_A_TIME);
  let copies = 0;
  const flush = flushOf(machine.layout.services);
  /** Flushes of instances that are not provisioned, by their root; one that another control plane made has none. */
  const flushing = new Map<string, Promise<void>>();

  const inTurnUnless = async <T>(atOnce: boolean, work: () => Promise<T>): Promise<T> =>
    atOnce ? work() : inTurn(work);

  /** Makes one data directory from another. Where that is a copy, no more than some at a time: who has to wait leaves its place to others. */
  const copying = async <T>(work: () => Promise<T>): Promise<T> => {
    if (machine.cloneMethod !== 'copy') return work();
    if (copies >= COPIES_AT_A_TIME)
      throw new NotYet(`waits until one of ${COPIES_AT_A_TIME} others has been copied`);
    copies += 1;
    return work().finally(() => {
      copies -= 1;
    });
  };

  const apply = async (
    spec: ServiceSpec,
    step: Exclude<Step, { kind: 'settled' | 'wait' | 'refuse' }>,
    found: Found,
  ): Promise<string> => {
    const { key, paths, marker, server, installation, files, filesAs, pooler } = found;
    const owner = ownerOf(machine, paths);
    const service = machine.layout.service(spec.id);
    if (installation === null || files === null || filesAs === null)
      throw new Error(missingFor(machine.installations.usable, spec.addons));
    switch (step.kind) {
      case 'makeTemplate':
        await templates.ensure(installation, extensionsOf(spec.addons));
        return `for PostgreSQL ${installation.version}, once for all services like this one`;
      case 'discard':
        await discard(machine, spec.id, paths.root);
        return 'the machine went down before it was on the disk, and before anybody could write to it';
      case 'clone':
        return clone(spec, paths, installation, filesAs, found.listener);
      case 'fork':
        return inTurnUnless(machine.cloneMethod === 'copy', () =>
          copying(() => fork(spec, step.origin, paths, installation, filesAs, found.listener)),
        );
      case 'own':
        return ownService(machine, spec.id, null);
      case 'writeFiles':
        await configure(found);
        return 'settings follow from the size';
      case 'start':
        return inTurnUnless(spec.origin === null || marker?.provisioned === true, () =>
          start(spec, found),
        );
      case 'connect':
        await monitor.connect(key, paths, found.listen.port, found.heartbeat);
        await rereadFiles(key);
        if (server !== null)
          await enforceLimits(machine.limits, key, spec.size, server.postmaster.pid);
        return 'over the Unix socket';
      case 'limit':
        if (server !== null)
          await enforceLimits(machine.limits, key, spec.size, server.postmaster.pid);
        unlimited.delete(key);
        return 'now that it can be done';
      case 'renewCertificate':
        await writeConfig(owner, paths, await issueCertificate(found.listener));
        if (server !== null) await reread(monitor, key, server);
        return 'running sessions keep the one they began with';
      case 'reload':
        await makeInstanceDirectories(owner, paths);
        await writeConfig(owner, paths, files);
        if (server !== null) await reread(monitor, key, server);
        return 'without a restart';
      case 'endSessions':
        return `${await endSessions(monitor, key, found.listener.allowedNetworks)} ended`;
      case 'setFirstPassword':
        await untilOnDisk(paths);
        await monitor.query(key, alterPassword(step.verifier));
        if (spec.origin !== null) await forgetRecovery(owner, paths);
        await writeMarker(paths, {
          id: spec.id,
          installation: marker?.installation ?? installation.name,
          provisioned: true,
          parent: null,
          madeIn: marker?.madeIn ?? '',
          uid: marker?.uid ?? null,
          userOf: null,
        });
        if (spec.origin !== null) await letIn(found);
        return `for ${ADMIN_ROLE}`;
      case 'startPooler':
        return startPooler(spec.id, service, found.listener, pooler, {
          primary: { paths, port: found.listen.port },
          untilReplayed: () => Promise.resolve(), // it connects to the primary itself
        });
      case 'reloadPooler':
        return reloadPooler(spec.id, service, pooler);
      case 'stopPooler':
        await poolers.stop(service);
        return step.why;
      case 'stop':
        // It starts again: clients of the pooler wait for it.
        if (step.mode === 'fast' && spec.power === 'running' && pooler !== null)
          await poolers.hold(service);
        if (server !== null) await stop(key, paths, server, step.mode);
        return step.why;
    }
  };

  /** Opens the listener of a fork that was just provisioned. Where this is interrupted, its files are seen to differ, or are read again at the next connect. */
  const letIn = async ({ key, paths, server, filesOnceProvisioned }: Found): Promise<void> => {
    if (server === null || filesOnceProvisioned === null) return;
    await writeConfig(ownerOf(machine, paths), paths, filesOnceProvisioned);
    await reread(monitor, key, server);
  };

  /** A control plane before this one may have written its files, and died before it told the server: who is let in stands in them. */
  const rereadFiles = async (key: string): Promise<void> => {
    try {
      await monitor.query(key, 'select pg_reload_conf()');
    } catch (error) {
      // Not connected, it is tried again.
      monitor.forget(key);
      throw error;
    }
  };

  const clone = async (
    spec: ServiceSpec,
    paths: InstancePaths,
    installation: Installation,
    filesAs: NonNullable<Found['filesAs']>,
    listener: Listener,
  ): Promise<string> => {
    const template = await templates.ensure(installation, extensionsOf(spec.addons));
    await assertSpaceFor(
      machine.cloneMethod === 'copy' ? CLONE_BYTES : CLONE_BYTES / 8,
      machine.layout.services,
    );
    const begun = Date.now();
    let way = 'from a clone made ahead';
    await precloned.withClone(template, (ahead) =>
      make(
        spec,
        paths,
        installation,
        filesAs,
        listener,
        ahead?.owner ?? null,
        async (unfinished, owner) => {
          if (ahead === null || !(await ahead.moveTo(unfinished.data))) {
            way = `by ${machine.cloneMethod}`;
            await cloneTree(template.data, unfinished.data, machine.cloneMethod, owner);
          }
          await recordInitialSnapshot(
            unfinished,
            template.name,
            await writeSystemIdentifier(unfinished.data),
          );
        },
      ),
    );
    beginFlush(paths);
    return `PostgreSQL ${installation.version} ${way} in ${Date.now() - begun} ms`;
  };

  /** Begun before its server starts, which would wait for it with each file of its own. */
  const beginFlush = ({ root }: InstancePaths): void => {
    const flushed = flush();
    // The error reaches the caller that waits for it.
    flushed.catch(() => undefined);
    flushing.set(root, flushed);
  };

  /** Nobody writes to what a crash of the machine could still take away. */
  const untilOnDisk = async ({ root }: InstancePaths): Promise<void> => {
    const flushed = flushing.get(root) ?? flush();
    // Where it failed, the next attempt makes another one.
    flushing.delete(root);
    await flushed;
  };

  const fork = async (
    spec: ServiceSpec,
    origin: Origin,
    paths: InstancePaths,
    installation: Installation,
    filesAs: NonNullable<Found['filesAs']>,
    listener: Listener,
  ): Promise<string> => {
    const parent = parentOf(origin);
    if ((await readMarker(parent)) === null)
      throw new Error(`its parent ${origin.parent} is no longer there`);
    let detail = '';
    await make(spec, paths, installation, filesAs, listener, null, async (unfinished, owner) => {
      detail = await forkData(machine, owner, parent, unfinished.data, origin, () =>
        writeMark(origin),
      );
    });
    return detail;
  };

  /** A commit of the parent's that no user sees, so that a recovery that goes up to now has one to stop at. */
  const writeMark = async ({ parent }: Origin): Promise<void> => {
    const key = memberKey(parent, machine.layout.primaryOf(parent));
    if (monitor.isConnected(key))
      await monitor.query(key, "select pg_logical_emit_message(true, 'howdah', 'fork')");
  };

  const parentOf = ({ parent }: Origin): InstancePaths =>
    machine.layout.member(parent, machine.layout.primaryOf(parent));

  /** Makes an instance under another name and renames it: one that was interrupted is never taken for a service. */
  const make = async (
    spec: ServiceSpec,
    paths: InstancePaths,
    installation: Installation,
    filesAs: NonNullable<Found['filesAs']>,
    listener: Listener,
    ahead: Owner | null,
    fill: (unfinished: InstancePaths, owner: Owner | null) => Promise<void>,
  ): Promise<void> => {
    const unfinished = instancePaths(`${paths.root}.new`);
    await removeTree(unfinished.root, machine.cloneMethod);
    await mkdir(unfinished.root, { mode: 0o710 });
    const owner = await newOwner(machine, paths, ahead);
    try {
      await makeInstanceDirectories(owner, unfinished);
      await allDone([
        // First: from here on nothing that a fork begins with is removed.
        currentBoot().then((madeIn) =>
          writeMarker(unfinished, {
            id: spec.id,
            installation: installation.name,
            provisioned: false,
            parent: spec.origin?.parent ?? null,
            madeIn,
            uid: owner?.name === SERVICE_USER ? owner.uid : null,
            userOf: null,
          }),
        ),
        fill(unfinished, owner),
        issueCertificate(listener).then((certificate) =>
          writeConfig(owner, unfinished, { ...filesAs(owner), ...certificate }),
        ),
      ]);
      await rename(unfinished.root, paths.root);
    } catch (error) {
      await removeTree(unfinished.root, machine.cloneMethod);
      throw error;
    }
  };

  /** Writes the files of a server that does not run. */
  const configure = async ({ paths, files, listener }: Found): Promise<void> => {
    const owner = ownerOf(machine, paths);
    await makeInstanceDirectories(owner, paths);
    await writeConfig(owner, paths, { ...files, ...(await issueCertificate(listener)) });
  };

  const start = async (spec: ServiceSpec, found: Found): Promise<string> => {
    const { key, paths, listener, heartbeat, marker, installation, pooler } = found;
    const owner = ownerOf(machine, paths);
    if (installation === null)
      throw new Error(missingFor(machine.installations.usable, spec.addons));
    const { address, port } = found.listen;
    const provisioned = marker?.provisioned === true;
    // Clients of its pooler wait for as long as it takes.
    if (pooler !== null) await poolers.hold(machine.layout.service(spec.id));
    await assertPlace(listener, machine.networks);
    await assertPortIsFree(listener, address, port);
    if (spec.origin !== null && spec.origin.targetTime !== null && !provisioned) {
      const { origin } = spec;
      await recoverOn(
        machine,
        owner,
        paths,
        parentOf(origin),
        spec.origin.targetTime,
        await whyItEnded(paths, 0),
        () => writeMark(origin),
      );
    }
    if (marker !== null && !provisioned) {
      // One that was not shut down flushes all of its files itself before it recovers.
      if (!(await wasShutDown(paths.data))) flushing.set(paths.root, Promise.resolve());
      else if (!flushing.has(paths.root)) beginFlush(paths);
    }
    // The reason why it has to be started. A standby may have the files that its primary had when it was cloned.
    const follows = isFile(join(paths.data, 'standby.signal'));
    const died = provisioned && !follows && !(await wasShutDown(paths.data).catch(() => true));
    const why = died ? 'it had ended without being shut down; ' : '';
    const begun = Date.now();
    await launch(machine, owner, paths, installation.bin, spec.size, listener, othersOf(spec));
    const state = await waitUntilReady(paths, START_PATIENCE_MS);
    if (state === 'ended')
      throw new Error(`PostgreSQL did not start: ${await whyItEnded(paths, begun)}`);
    if (state === 'starting') return `${why}recovering from its log, which goes on`;
    const server = await findServer(paths);
    if (server !== null) limit(key, spec.size, server);
    // Members and nodes are not let in before they are watched; neither is one that has no password yet.
    if (provisioned && spec.ha === null && spec.set === null)
      monitor.connectSoon(key, paths, port, heartbeat);
    else await monitor.connect(key, paths, port, heartbeat);
    return `${why}accepting connections after ${Date.now() - begun} ms`;
  };

  /** The services whose files a server reads: a node those of the primary that it follows. */
  const othersOf = ({ set }: ServiceSpec): string[] =>
    set === null ? [] : [machine.layout.service(set.parent).root];

  /** Holds a server that has just started to its size. Nobody waits for it: joining a group takes a third of a start. */
  const limit = (key: string, size: Size, { postmaster }: Server): void => {
    const done = enforceLimits(machine.limits, key, size, postmaster.pid)
      .then(
        () => void unlimited.delete(key),
        () => void unlimited.add(key),
      )
      .finally(() => limiting.delete(key));
    limiting.set(key, done);
  };

  const assertPortIsFree = async (
    { namespace }: Listener,
    address: string,
    port: number,
  ): Promise<void> => {
    // Nobody else is in a network of our own.
    if (namespace !== null) return;
    if (await portIsFree(address, port)) return;
    throw new Error(
      `port ${port} of ${address} is held by another program; end it (ss -ltnp 'sport = :${port}' shows it), the start is tried again`,
    );
  };

  const wanted = (pooler: PoolerPlan | null): PoolerPlan => {
    if (pooler === null) throw new Error(MISSING_POOLER);
    return pooler;
  };

  const startPooler = async (
    id: string,
    service: InstancePaths,
    listener: Listener,
    plan: PoolerPlan | null,
    servers: PoolerServers,
  ): Promise<string> => {
    await assertPortIsFree(listener, listener.address, wanted(plan).port);
    return poolers.start(id, service, wanted(plan), servers);
  };

  const reloadPooler = (
    id: string,
    service: InstancePaths,
    plan: PoolerPlan | null,
  ): Promise<string> => poolers.reload(id, service, wanted(plan));

  const stop = async (
    key: string,
    paths: InstancePaths,
    server: Server,
    mode: StopMode,
  ): Promise<void> => {
    monitor.forget(key);
    await limiting.get(key);
    await liftWriteLimit(machine.limits, key);
    const patienceMs = mode === 'fast' ? STOP_PATIENCE_MS : 5000;
    // Orderly ways come first; a server that refuses them is ended all the same and recovers from its log at the next start.
    const gone =
      (await stopServer(machine, server, mode, patienceMs)) ||
      (await stopServer(machine, server, 'kill', 5000));
    // Without the file nobody looks for it among all processes.
    if (gone) return rm(paths.pidFile, { force: true });
    throw new Error(
      `its server (pid ${server.postmaster.pid}) does not end, not even by SIGKILL: is ${paths.root} on a disk that hangs?`,
    );
  };

  const issueCertificate = async (listener: Listener): Promise<Record<string, string>> => {
    const { certificatePem, keyPem } = await issuer.take(hostsOf(listener));
    return { 'server.crt': certificatePem, 'server.key': keyPem };
  };

  /** The statement that sets the admin role's password. */
  const alterPassword = (verifier: string): string => {
    // The verifier is of our own making: base64 and the punctuation of SCRAM, nothing that could leave the literal.
    if (!/^SCRAM-SHA-256\$[0-9]+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+$/.test(verifier))
      throw new Error('not a SCRAM verifier');
    return `alter role ${ADMIN_ROLE} password '${verifier}'`;
  };

  return {
    apply,
    own: (id: string, followed: string | null) => ownService(machine, id, followed),
    configure,
    start,
    stop,
    startPooler,
    reloadPooler,
    alterPassword,
    copying,
    isLimited: (key: string): boolean => !unlimited.has(key),
  };
}

export type Executor = ReturnType<typeof createExecutor>;

/** Waits for all, whatever becomes of each, so that none still writes when what was made is taken away. @throws the first error */
async function allDone(tasks: readonly Promise<void>[]): Promise<void> {
  await Promise.allSettled(tasks);
  await Promise.all(tasks);
}
