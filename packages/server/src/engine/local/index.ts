/** The engine that runs services as PostgreSQL servers on this machine: observe, decide, apply. */
import { readdir, readFile, rename, statfs, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { ADDONS_OF_TYPE, ADMIN_ROLE, EXTENSION_OF_ADDON, SERVICE_TYPES, type Addon, type ServiceType } from '@howdah/contract';
import { createIssuer, needsRenewal, type CertificateAuthority } from '../../tls.ts';
import { isWildcard, type BackupPolicy } from '../../config.ts';
import {
  EngineUnavailable,
  type BeginStep,
  type Capabilities,
  type Engine,
  type Origin,
  type Seen,
  type ServiceSpec,
  type TypeCapability,
  type Verdict,
} from '../engine.ts';
import {
  describeBackups,
  forgetRecovery,
  forkData,
  listSnapshots,
  noteBirth,
  NotYet,
  pruneBackups,
  recoverToTheEnd,
  takeSnapshot,
} from './backups.ts';
import { assertSpaceFor, cloneTree, removeTree } from './clone.ts';
import { decide, STEP_NAME, type Observation, type Step } from './decide.ts';
import { configFiles, type ConfigFiles } from './files.ts';
import { writeSystemIdentifier } from './identity.ts';
import { installationFor, missingFor, type Installation } from './installations.ts';
import { instancePaths, type InstancePaths } from './layout.ts';
import { limitsNote, limitsPresent, removeLimits, setLimits } from './limits.ts';
import { readLogs, pruneLogs } from './logs.ts';
import type { Machine } from './machine.ts';
import { createMonitor, NoAnswer } from './monitor.ts';
import { isErrno, readOrNull } from './processes.ts';
import { run } from './run.ts';
import {
  findServer,
  launch,
  makeInstanceDirectories,
  phaseOf,
  portIsFree,
  sizeLabel,
  stopServer,
  waitUntilReady,
  whyItEnded,
  writeConfig,
  type Server,
} from './server.ts';
import type { Templates } from './templates.ts';
import { measure, type Glance } from './usage.ts';

export type LocalEngineOptions = {
  machine: Machine;
  templates: Templates;
  authority: CertificateAuthority;
  /** The address that servers listen on. */
  listenAddress: string;
  /** The names and addresses that certificates carry. */
  certificateHosts: readonly string[];
  backups: BackupPolicy;
  /** Called when something watched changed by itself, with the service's id. */
  changed: (id: string) => void;
};

/** How long a server may take to be ready before its start is reported as going on. */
const START_PATIENCE_MS = 3000;
const STOP_PATIENCE_MS = 60_000;
/** A settled service is looked at again after this long, for its certificate and its logs. */
export const LOOK_AGAIN_MS = 3_600_000;
/** A clone of a template takes at most this much. */
const CLONE_BYTES = 80e6;

/** What an instance's marker says. */
type Marker = { id: string; installation: string; born: boolean; parent: string | null };

export function createLocalEngine(options: LocalEngineOptions): Engine {
  const { machine, templates, authority, changed } = options;
  const installations = machine.installations.usable;
  const monitor = createMonitor(changed, async (id) => (await findServer(machine.layout.service(id)))?.postmaster.frozen === true);
  const issuer = createIssuer(authority, options.certificateHosts);
  let closing = false;
  const glances = new Map<string, Glance>();
  /** Why a service's backups do not get on. */
  const problems = new Map<string, string>();
  /** Services whose backups are being seen to. */
  const keeping = new Set<string>();

  // ── observe ────────────────────────────────────────────────────────────────────────────────────────────────────

  type Look = {
    paths: InstancePaths;
    marker: Marker | null;
    server: Server | null;
    installation: Installation | null;
    files: ConfigFiles | null;
  };

  /** The installation of a service: the one it was made with, or its like of the same major; for a new one the preferred. */
  const installationOf = (marker: Marker | null, addons: readonly Addon[]): Installation | null => {
    if (marker === null) return installationFor(installations, addons);
    const same = installations.find((found) => found.name === marker.installation);
    const major = Number.parseInt(marker.installation, 10);
    return (
      same ??
      installationFor(
        installations.filter((found) => found.major === major),
        addons,
      )
    );
  };

  const look = async (spec: ServiceSpec): Promise<{ look: Look; seen: Observation }> => {
    const paths = machine.layout.service(spec.id);
    const [marker, server, exists] = await Promise.all([readMarker(paths), findServer(paths), directoryExists(paths.root)]);
    // A fork runs on what its parent runs on.
    const made = marker === null && spec.origin !== null ? await readMarker(machine.layout.service(spec.origin.parent)) : marker;
    const installation = installationOf(made, spec.addons);
    const files = installation === null ? null : filesFor(spec, paths, installation);
    const ours = marker?.id === spec.id;
    const [templateReady, phase, filesCurrent, certificateCurrent] = await Promise.all([
      !exists && installation !== null && templates.isReady(installation, extensionsOf(spec.addons)),
      phaseOf(paths),
      !ours || files === null || filesAreCurrent(paths, files),
      !ours || certificateIsCurrent(paths),
    ]);
    const seen: Observation = {
      directory: exists ? (ours ? 'ours' : 'foreign') : 'absent',
      born: ours && marker.born,
      templateReady,
      server: server === null ? null : { phase, sizeCurrent: server.size === sizeLabel(spec.size) },
      silentMs: monitor.silentMs(spec.id),
      connected: monitor.isConnected(spec.id),
      filesCurrent,
      certificateCurrent,
    };
    return { look: { paths, marker, server, installation, files }, seen };
  };

  const filesFor = (spec: ServiceSpec, paths: InstancePaths, installation: Installation): ConfigFiles =>
    configFiles(
      {
        paths,
        installation,
        extensions: extensionsOf(spec.addons),
        size: spec.size,
        listen: { address: options.listenAddress, port: spec.endpoint.port },
      },
      machine.controlUsers,
    );

  const certificateIsCurrent = async (paths: InstancePaths): Promise<boolean> => {
    const pem = await readOrNull(join(paths.config, 'server.crt'));
    return pem !== null && !needsRenewal(pem, authority, options.certificateHosts);
  };

  // ── apply ──────────────────────────────────────────────────────────────────────────────────────────────────────

  const apply = async (
    spec: ServiceSpec,
    step: Exclude<Step, { kind: 'settled' | 'wait' | 'refuse' }>,
    { paths, marker, server, installation, files }: Look,
  ): Promise<string> => {
    if (installation === null || files === null) throw new Error(missingFor(installations, spec.addons));
    switch (step.kind) {
      case 'makeTemplate':
        await templates.ensure(installation, extensionsOf(spec.addons));
        return `for PostgreSQL ${installation.version}, once for all services like this one`;
      case 'clone':
        return clone(spec, paths, installation, files);
      case 'fork':
        return fork(spec, step.origin, paths, installation, files);
      case 'writeFiles':
        await makeInstanceDirectories(machine, paths);
        await writeConfig(machine, paths, { ...files, ...(await issueCertificate()) });
        return 'settings follow from the size';
      case 'start':
        return start(spec, paths, marker?.born === true, installation);
      case 'connect':
        await monitor.connect(spec.id, paths, spec.endpoint.port);
        await setLimits(machine.limits, spec.id, spec.size);
        return 'over the Unix socket';
      case 'renewCertificate':
        await writeConfig(machine, paths, await issueCertificate());
        await monitor.query(spec.id, 'select pg_reload_conf()');
        return 'running sessions keep the one they began with';
      case 'reload':
        await makeInstanceDirectories(machine, paths);
        await writeConfig(machine, paths, files);
        await monitor.query(spec.id, 'select pg_reload_conf()');
        return 'without a restart';
      case 'setFirstPassword':
        await alterPassword(spec.id, step.verifier);
        if (spec.origin !== null) await forgetRecovery(machine, paths);
        await writeMarker(paths, { id: spec.id, installation: marker?.installation ?? installation.name, born: true, parent: null });
        return `for ${ADMIN_ROLE}`;
      case 'stop':
        if (server !== null) await stop(spec.id, paths, server, step.mode);
        return step.why;
    }
  };

  const clone = async (spec: ServiceSpec, paths: InstancePaths, installation: Installation, files: ConfigFiles): Promise<string> => {
    const template = await templates.ensure(installation, extensionsOf(spec.addons));
    await assertSpaceFor(machine.cloneMethod === 'copy' ? CLONE_BYTES : CLONE_BYTES / 8, machine.layout.services);
    const begun = Date.now();
    await make(spec, paths, installation, files, async (unfinished) => {
      await cloneTree(template.data, unfinished.data, machine.cloneMethod, machine.owner);
      await noteBirth(unfinished, template.name, await writeSystemIdentifier(unfinished.data));
    });
    return `PostgreSQL ${installation.version} by ${machine.cloneMethod} in ${Date.now() - begun} ms`;
  };

  const fork = async (
    spec: ServiceSpec,
    origin: Origin,
    paths: InstancePaths,
    installation: Installation,
    files: ConfigFiles,
  ): Promise<string> => {
    const parent = machine.layout.service(origin.parent);
    if ((await readMarker(parent)) === null) throw new Error(`its parent ${origin.parent} is no longer there`);
    // A commit of the parent's that no user sees, so that a recovery that goes up to now has one to stop at.
    const writeMark = async (): Promise<void> => {
      if (monitor.isConnected(origin.parent)) await monitor.query(origin.parent, "select pg_logical_emit_message(true, 'howdah', 'fork')");
    };
    let detail = '';
    await make(spec, paths, installation, files, async (unfinished) => {
      detail = await forkData(machine, parent, unfinished.data, origin, writeMark);
    });
    return detail;
  };

  /** Makes an instance under another name and renames it: one that was cut short is never taken for a service. */
  const make = async (
    spec: ServiceSpec,
    paths: InstancePaths,
    installation: Installation,
    files: ConfigFiles,
    fill: (unfinished: InstancePaths) => Promise<void>,
  ): Promise<void> => {
    const unfinished = instancePaths(`${paths.root}.new`);
    await removeTree(unfinished.root, machine.cloneMethod);
    try {
      await makeInstanceDirectories(machine, unfinished);
      // Takes as long as a snapshot does: it is made meanwhile.
      const certificate = issueCertificate();
      certificate.catch(() => undefined);
      await fill(unfinished);
      await writeConfig(machine, unfinished, { ...files, ...(await certificate) });
      await writeMarker(unfinished, { id: spec.id, installation: installation.name, born: false, parent: spec.origin?.parent ?? null });
      await rename(unfinished.root, paths.root);
    } catch (error) {
      await removeTree(unfinished.root, machine.cloneMethod);
      throw error;
    }
  };

  const start = async (spec: ServiceSpec, paths: InstancePaths, born: boolean, installation: Installation): Promise<string> => {
    const { port } = spec.endpoint;
    if (!(await portIsFree(options.listenAddress, port))) {
      throw new Error(
        `port ${port} of ${options.listenAddress} is held by another program; end it (ss -ltnp 'sport = :${port}' shows it), the start is tried again`,
      );
    }
    if (spec.origin !== null && !born) {
      await recoverToTheEnd(machine, paths, machine.layout.service(spec.origin.parent), await whyItEnded(paths, 0));
    }
    // The start itself is not held to the size: half a core would double the time for which nobody can connect.
    const cgroupFiles = await setLimits(machine.limits, spec.id, 'shared');
    const begun = Date.now();
    await launch(machine, paths, installation.bin, spec.size, cgroupFiles);
    // A clone's files reach the disk while its server starts for the first time; a crash of the machine afterwards finds them whole.
    const flushed = born ? Promise.resolve('') : run('sync', ['-f', paths.data]);
    flushed.catch(() => undefined);
    const state = await waitUntilReady(paths, START_PATIENCE_MS);
    if (state === 'ended') throw new Error(`PostgreSQL did not start: ${await whyItEnded(paths, begun)}`);
    if (state === 'starting') {
      await flushed;
      return 'recovering from its log, which goes on';
    }
    await Promise.all([flushed, monitor.connect(spec.id, paths, port)]);
    await setLimits(machine.limits, spec.id, spec.size);
    return `accepting connections after ${Date.now() - begun} ms`;
  };

  const stop = async (id: string, paths: InstancePaths, server: Server, mode: 'fast' | 'immediate' | 'kill'): Promise<void> => {
    monitor.forget(id);
    if (await stopServer(machine, server, mode, mode === 'fast' ? STOP_PATIENCE_MS : 5000)) return;
    // Orderly ways come first; a server that refuses them is ended all the same and recovers from its log at the next start.
    if (await stopServer(machine, server, 'kill', 5000)) return;
    throw new Error(`its server (pid ${server.postmaster.pid}) does not end, not even by SIGKILL: is ${paths.root} on a disk that hangs?`);
  };

  const issueCertificate = async (): Promise<Record<string, string>> => {
    const { certificatePem, keyPem } = await issuer.take();
    return { 'server.crt': certificatePem, 'server.key': keyPem };
  };

  const alterPassword = async (id: string, verifier: string): Promise<void> => {
    // The verifier is of our own making: base64 and the punctuation of SCRAM, nothing that could leave the literal.
    if (!/^SCRAM-SHA-256\$[0-9]+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+$/.test(verifier)) throw new Error('not a SCRAM verifier');
    await monitor.query(id, `alter role ${ADMIN_ROLE} password '${verifier}'`);
  };

  const writeMarker = async (paths: InstancePaths, marker: Marker): Promise<void> => {
    await writeFile(`${paths.marker}.new`, JSON.stringify(marker), { flush: true });
    await rename(`${paths.marker}.new`, paths.marker);
  };

  // ── the interface ──────────────────────────────────────────────────────────────────────────────────────────────

  const converge = async (spec: ServiceSpec, begin: BeginStep): Promise<Verdict> => {
    const { look: now, seen } = await look(spec);
    // Not having connected yet, after a start of the control plane, is no fault of the service's.
    const reachable = seen.server?.phase === 'ready' && seen.silentMs === null;
    const before: Seen = { reachable, present: seen.directory === 'ours' };
    const step = decide(spec, seen);
    switch (step.kind) {
      case 'settled':
        if (seen.directory === 'ours') await pruneLogs(now.paths.logs);
        // It was being made when it was deleted.
        else await removeTree(instancePaths(`${now.paths.root}.new`).root, machine.cloneMethod);
        return { did: null, detail: null, seen: before, outcome: 'settled' };
      case 'wait':
        return { did: null, detail: step.why, seen: before, outcome: 'again', waitMs: step.waitMs };
      case 'refuse':
        return { did: null, detail: null, seen: before, outcome: 'failed', reason: `${now.paths.root}: ${step.why}` };
      default: {
        const did = STEP_NAME[step.kind];
        await begin(did, before);
        try {
          const detail = await apply(spec, step, now);
          return { did, detail, seen: { reachable: monitor.isConnected(spec.id), present: true }, outcome: 'again', waitMs: 0 };
        } catch (error) {
          const reason = error instanceof Error ? error.message : String(error);
          if (error instanceof NotYet) return { did: null, detail: reason, seen: before, outcome: 'again', waitMs: 100 };
          return { did, detail: reason, seen: { ...before, reachable: false }, outcome: 'failed', reason: `${did}: ${reason}` };
        }
      }
    }
  };

  const remove = async (id: string, begin: BeginStep): Promise<Verdict> => {
    const paths = machine.layout.service(id);
    const gone: Seen = { reachable: false, present: false };
    const [server, marker] = await Promise.all([findServer(paths), readMarker(paths)]);
    const children = await unbornForksOf(id);
    if (children.length > 0) {
      return {
        did: null,
        detail: `waiting for ${children.join(', ')}, being forked from it`,
        seen: { reachable: false, present: true },
        outcome: 'again',
        waitMs: 500,
      };
    }
    monitor.forget(id);
    glances.delete(id);
    problems.delete(id);
    if (server !== null) {
      await begin('stop PostgreSQL', { reachable: false, present: true });
      // Immediately rather than at once: the server gives its shared memory back.
      await stop(id, paths, server, 'immediate');
      return { did: 'stop PostgreSQL', detail: null, seen: { reachable: false, present: true }, outcome: 'again', waitMs: 0 };
    }
    await removeTree(instancePaths(`${paths.root}.new`).root, machine.cloneMethod);
    if (marker?.id === id) {
      await begin('remove data', { reachable: false, present: true });
      const trash = join(machine.layout.trash, `${id}-${randomBytes(4).toString('hex')}`);
      await rename(paths.root, trash);
      await removeTree(trash, machine.cloneMethod);
      return { did: 'remove data', detail: null, seen: gone, outcome: 'again', waitMs: 0 };
    }
    if (await limitsPresent(machine.limits, id)) await removeLimits(machine.limits, id);
    return { did: null, detail: null, seen: gone, outcome: 'settled' };
  };

  /** Forks that are being made of a service, whose archive and snapshots they may still need. */
  const unbornForksOf = async (id: string): Promise<string[]> => {
    const entries = await readdir(machine.layout.services);
    const markers = await Promise.all(entries.map((entry) => readMarker(machine.layout.service(entry))));
    return markers
      .filter((marker) => marker !== null)
      .filter((marker) => marker.parent === id && !marker.born)
      .map((marker) => marker.id);
  };

  const keepBackups = async (id: string): Promise<void> => {
    // One at a time: another would take a snapshot that is being made for one that was cut short.
    if (keeping.has(id)) return;
    keeping.add(id);
    const paths = machine.layout.service(id);
    try {
      const [row] = await monitor.query<{ wal: string; failing: boolean; file: string | null }>(
        id,
        `select pg_current_wal_insert_lsn()::text as wal, last_failed_wal as file,
                last_failed_time is not null and last_failed_time > coalesce(last_archived_time, '-infinity') as failing
         from pg_stat_archiver`,
      );
      const [newest] = await listSnapshots(paths);
      const due = newest === undefined || Date.now() - newest.takenMs >= options.backups.snapshotEveryMs;
      if (due && row !== undefined && (newest === undefined || (await writtenSince(id, newest.walPosition))))
        await takeSnapshot(machine, paths);
      if ((await unbornForksOf(id)).length === 0) await pruneBackups(machine, paths, options.backups);
      if (row?.failing === true) problems.set(id, `WAL file ${row.file ?? ''} cannot be archived to ${paths.archive}: is the disk full?`);
      else problems.delete(id);
    } catch (error) {
      problems.set(id, `no snapshot could be taken: ${error instanceof Error ? error.message : String(error)}`);
      throw error;
    } finally {
      keeping.delete(id);
    }
  };

  /** A checkpoint and the like write a little even when nobody does. */
  const writtenSince = async (id: string, walPosition: string): Promise<boolean> => {
    if (walPosition === '') return true;
    const [row] = await monitor.query<{ written: boolean }>(
      id,
      'select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn) > 8192 as written',
      [walPosition],
    );
    return row?.written === true;
  };

  const supports = (addons: readonly Addon[]): TypeCapability => {
    const installation = installationFor(installations, addons);
    return installation === null ? { missing: missingFor(installations, addons) } : { version: installation.version };
  };

  const typeCapabilities = (): Record<ServiceType, TypeCapability> => ({
    TIMESCALEDB: supports(ADDONS_OF_TYPE.TIMESCALEDB),
    POSTGRES: supports(ADDONS_OF_TYPE.POSTGRES),
    VECTOR: supports(ADDONS_OF_TYPE.VECTOR),
  });

  const capabilities: Capabilities = {
    engine: 'local',
    types: typeCapabilities(),
    limitsEnforced: machine.limits.kind !== 'none',
    limitsNote: limitsNote(machine.limits),
  };

  const usage: Engine['usage'] = async (id) => {
    const paths = machine.layout.service(id);
    const server = await findServer(paths);
    if (server === null) throw new EngineUnavailable('the server is not running');
    const { usage: used, glance } = await measure(paths, id, server.postmaster, monitor, glances.get(id) ?? null);
    glances.set(id, glance);
    return used;
  };

  return {
    capabilities,
    supports,
    portIsFree: (port) => portIsFree(options.listenAddress, port),
    runs: async (id) => (await findServer(machine.layout.service(id))) !== null,
    converge,
    remove,
    setPassword: async (id, verifier) => {
      try {
        await alterPassword(id, verifier);
      } catch (error) {
        if (error instanceof NoAnswer) throw new EngineUnavailable(error.message, { cause: error });
        throw error;
      }
    },
    logs: async (id, query) => {
      try {
        return await readLogs(machine.layout.service(id).logs, query);
      } catch (error) {
        // Nothing was logged before there is a directory.
        if (isErrno(error, 'ENOENT')) return { entries: [], cursor: null };
        throw error;
      }
    },
    usage,
    backups: (id) => describeBackups(machine.layout.service(id), options.backups, problems.get(id) ?? null),
    keepBackups,
    prepare: async () => {
      for (const entry of await readdir(machine.layout.trash)) await removeTree(join(machine.layout.trash, entry), machine.cloneMethod);
      for (const type of SERVICE_TYPES) {
        const installation = installationFor(installations, ADDONS_OF_TYPE[type]);
        if (installation !== null && !closing) await templates.ensure(installation, extensionsOf(ADDONS_OF_TYPE[type]));
      }
    },
    disk: async () => {
      const { blocks, bavail, bfree, bsize } = await statfs(machine.layout.services);
      // As df reckons it: of what is not reserved for root.
      const usable = blocks - bfree + bavail;
      return {
        totalBytes: usable * bsize,
        freeBytes: bavail * bsize,
        usedPercent: usable === 0 ? 100 : ((usable - bavail) / usable) * 100,
        path: machine.layout.services,
      };
    },
    close: async () => {
      closing = true;
      monitor.close();
    },
  };
}

/** The names and addresses under which clients may reach a server: what certificates carry. */
export function certificateHosts(publicHost: string, listenAddress: string): string[] {
  const listen = isWildcard(listenAddress) ? [] : [listenAddress];
  return [...new Set([publicHost, ...listen, 'localhost', '127.0.0.1', '::1'])];
}

function extensionsOf(addons: readonly Addon[]) {
  return addons.map((addon) => EXTENSION_OF_ADDON[addon]);
}

async function filesAreCurrent(paths: InstancePaths, files: ConfigFiles): Promise<boolean> {
  const found = await Promise.all(Object.keys(files).map((name) => readOrNull(join(paths.config, name))));
  return Object.values(files).every((text, index) => found[index] === text);
}

async function directoryExists(path: string): Promise<boolean> {
  try {
    await readdir(path);
    return true;
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return false;
    if (isErrno(error, 'ENOTDIR')) return true;
    throw error;
  }
}

async function readMarker(paths: InstancePaths): Promise<Marker | null> {
  let marker: unknown;
  try {
    marker = JSON.parse(await readFile(paths.marker, 'utf8'));
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR') || error instanceof SyntaxError) return null;
    throw error;
  }
  if (typeof marker !== 'object' || marker === null || !('id' in marker) || !('installation' in marker) || !('born' in marker)) return null;
  return {
    id: String(marker.id),
    installation: String(marker.installation),
    born: marker.born === true,
    parent: 'parent' in marker && typeof marker.parent === 'string' ? marker.parent : null,
  };
}
