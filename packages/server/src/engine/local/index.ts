/** The engine that runs services as PostgreSQL servers on this machine: observe, {@link decide}, apply. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ADDONS_OF_TYPE, SERVICE_TYPES, type Addon, type ServiceType } from '@howdah/contract';
import { createCertificateCheck, createIssuer, type CertificateAuthority } from '../../lib/tls.ts';
import type { BackupPolicy, FailoverPolicy, ReadLagLimit } from '../../config.ts';
import {
  EngineUnavailable,
  type BeginStep,
  type Capabilities,
  type Engine,
  type Lifecycle,
  type PrimaryStore,
  type Seen,
  type TypeCapability,
  type Verdict,
} from '../engine.ts';
import type { ServiceSpec } from '../spec.ts';
import { applyStep } from './topology/apply.ts';
import { areFilesCurrent, isCertificateCurrent } from './topology/configure.ts';
import { createExecutor, type Found } from './topology/executor.ts';
import { stopInstance } from './topology/start-stop.ts';
import { describeBackups } from './backup/window.ts';
import { NotYet } from './host/not-yet.ts';
import { removeLinkedArchive } from './backup/prune.ts';
import { CLONE_COST, discard, removeTree } from './host/clone.ts';
import { capLog, findDaemon } from './host/daemon.ts';
import { decide, STEP_NAME, type Observation } from './topology/decide.ts';
import type { Egress } from './host/egress.ts';
import { planOf } from './topology/plan.ts';
import { configFiles, filesWhileProvisioning, type ConfigFiles } from './postgres/files.ts';
import { listenerOf, runsInNetworkOf, type Listener } from './network/listener.ts';
import {
  installationFor,
  installationOf,
  missingFor,
  type Installation,
} from './postgres/installations.ts';
import {
  backupWarnings,
  createKeeper,
  forgetBackups,
  holdingBackups,
  keepBackups,
  provisioningForksOf,
} from './backup/keeper.ts';
import { instancePaths, memberKey, partsOfKey, type InstancePaths } from './host/layout.ts';
import { groupIds, limitsNote, removeLimits } from './host/limits.ts';
import { pruneLogs } from './postgres/logs.ts';
import { isolationNote } from './host/machine.ts';
import type { Machine } from './host/machine-record.ts';
import type { Owner } from './host/owner.ts';
import { currentBoot, readMarker } from './host/marker.ts';
import { createObserving } from './observe.ts';
import { createStorage } from './storage.ts';
import { alterPassword, setPassword } from './postgres/password.ts';
import { createMembers, memberNumbers } from './topology/members.ts';
import { makeNetworks } from './network/networks.ts';
import { countDisallowedSessions } from './network/disallowed-sessions.ts';
import { SLOW_HEARTBEAT, createMonitor, NoAnswer, type Heartbeat } from './postgres/monitor.ts';
import { createOutOfMemory, readMemoryCounters } from './host/out-of-memory.ts';
import {
  observePooler,
  stopPooler,
  createPoolers,
  MISSING_POOLER,
  type PoolerPlan,
} from './proxy/pooler.ts';
import { poolerConf } from './proxy/pooler-conf.ts';
import { createQuotas, forgetQuota, QUOTA_NOTE } from './host/quota.ts';
import { createReader } from './postgres/reader.ts';
import { createReplicaSets } from './topology/replica-sets.ts';
import { readOrNull } from '../../lib/processes.ts';
import { serverSettings } from './postgres/settings.ts';
import { findServer, phaseOf, portIsFree, sizeLabel } from './postgres/server.ts';
import { createPrecloned } from './postgres/precloned.ts';
import { createStorageMeter } from './host/storage.ts';
import { extensionsOf, type Template, type Templates } from './postgres/templates.ts';
import type { Glance } from './host/usage.ts';
import { isOwned } from './host/own.ts';
import { configUsersOf, ownerOf, reclaimUsers, releaseUser } from './host/users.ts';
import { createVerifications, sweepCopies, verifyBackup } from './backup/verify.ts';

export { certificateHosts } from './network/listener.ts';

export type LocalEngineOptions = {
  machine: Machine;
  templates: Templates;
  authority: CertificateAuthority;
  /** The address that servers listen on. */
  listenAddress: string;
  /** The names and addresses that certificates carry. */
  certificateHosts: readonly string[];
  backups: BackupPolicy;
  gateway: TypeCapability;
  /** How members of services with replicas are watched, and when one of them takes over. */
  heartbeat: Heartbeat;
  failover: FailoverPolicy;
  readLagLimit: ReadLagLimit;
  records: PrimaryStore;
  egress: Egress;
  /** Called when something watched changed by itself, with the service's id. */
  changed: (id: string) => void;
};

/** Where the members of a service listen, behind its gateway. */
const LOOPBACK = '127.0.0.1';

/** When to check for sessions that logged in while the rules changed; a login takes a minute at most. */
const RECHECK_SESSIONS_MS = [1000, 10_000, 61_000];

export function createLocalEngine(options: LocalEngineOptions): Engine {
  const { machine, templates, authority } = options;
  const installations = machine.installations.usable;
  const pathsOf = (key: string): InstancePaths => {
    const { id, n } = partsOfKey(key);
    return machine.layout.member(id, n);
  };
  const monitor = createMonitor(
    (key) => void members.noticed(key),
    async (key) => (await findServer(pathsOf(key)))?.postmaster.frozen === true,
  );
  const poolers = createPoolers(machine, options.changed);
  const issuer = createIssuer(authority, options.certificateHosts);
  const listenerFor = ({ vpc }: Pick<ServiceSpec, 'vpc'>): Listener =>
    listenerOf(vpc, options.listenAddress, machine.networkPrefix);
  const precloned = createPrecloned(machine);
  const executor = createExecutor({ machine, templates, precloned, monitor, issuer, poolers });
  const keeper = createKeeper(machine, monitor, options.backups);
  const verifications = createVerifications(machine, monitor);
  const outOfMemory = createOutOfMemory(
    (key) => readMemoryCounters(machine.limits, key),
    () => groupIds(machine.limits),
  );
  const reader = createReader(monitor);
  const meter = createStorageMeter(machine.cloneMethod);
  const quotas = createQuotas(machine, monitor);
  const members = createMembers({
    ...options,
    listenerFor,
    executor,
    monitor,
    poolers,
    look: (spec, n) => look(spec, n),
  });
  const sets = createReplicaSets({
    ...options,
    listenerFor,
    executor,
    monitor,
    poolers,
    look: (spec, n) => look(spec, n),
    planPooler: (spec, server, port, { listener, installation }) =>
      poolerPlan(spec, server, port, listener, installation),
  });
  const primaryPaths = (id: string): InstancePaths =>
    machine.layout.member(id, machine.layout.primaryOf(id));
  const certificates = createCertificateCheck(authority, options.certificateHosts);
  let closing = false;
  const glances = new Map<string, Glance>();

  // ── observe ────────────────────────────────────────────────────────────────────────────────────────────────────

  const look = async (spec: ServiceSpec, n = 0): Promise<{ look: Found; seen: Observation }> => {
    const paths = machine.layout.member(spec.id, n);
    const key = memberKey(spec.id, n);
    const listener = listenerFor(spec);
    const listen = listenOf(spec, n);
    const [marker, server] = await Promise.all([readMarker(paths), findServer(paths)]);
    const exists = existsSync(n === 0 ? paths.root : paths.data);
    // A fork runs on what its parent runs on.
    const made =
      marker === null && spec.origin !== null
        ? await readMarker(machine.layout.service(spec.origin.parent))
        : marker;
    const installation = installationOf(installations, made, spec.addons);
    const filesBy =
      installation === null
        ? null
        : (owner: Owner | null) => filesFor(spec, paths, listen, listener, installation, owner);
    const filesOnceProvisioned = filesBy?.(ownerOf(machine, paths)) ?? null;
    const ours = marker?.id === spec.id;
    const provisioningFork = spec.origin !== null && !(ours && marker.provisioned);
    const filesNow = (all: ConfigFiles): ConfigFiles =>
      provisioningFork ? filesWhileProvisioning(all) : all;
    const filesAs = filesBy === null ? null : (owner: Owner | null) => filesNow(filesBy(owner));
    const files = filesOnceProvisioned === null ? null : filesNow(filesOnceProvisioned);
    const incomplete =
      server === null && ours && !marker.provisioned && marker.madeIn !== (await currentBoot());
    // The pooler of a set is in front of all its nodes.
    const before =
      spec.set === null && (spec.ha === null || n === machine.layout.primaryOf(spec.id));
    const plan = before ? await poolerPlan(spec, paths, listen.port, listener, installation) : null;
    const [
      templateReady,
      phase,
      filesCurrent,
      certificateCurrent,
      pooler,
      placed,
      disallowedSessions,
    ] = await Promise.all([
      !exists &&
        installation !== null &&
        templates.isReady(installation, extensionsOf(spec.addons)),
      phaseOf(paths),
      !ours || files === null || areFilesCurrent(paths, files),
      !ours || isCertificateCurrent(certificates, paths, listener),
      before ? observePooler(poolers, machine.layout.service(spec.id), plan, listener) : null,
      server === null || runsInNetworkOf(server.postmaster.pid, listener),
      // Behind a gateway it is the gateway that lets them in.
      spec.ha === null && spec.set === null
        ? countDisallowedSessions(monitor, key, listener.allowedNetworks)
        : 0,
    ]);
    const seen: Observation = {
      directory: !exists ? 'absent' : !ours ? 'foreign' : incomplete ? 'incomplete' : 'ours',
      provisioned: ours && marker.provisioned,
      templateReady,
      server:
        server === null
          ? null
          : { phase, sizeCurrent: server.size === sizeLabel(spec.size), placed },
      silentMs: monitor.silentMs(key),
      owned: !ours || (await isOwned(machine, spec, marker)),
      connected: monitor.isConnected(key),
      limited: !executor.unlimited.has(key),
      filesCurrent,
      certificateCurrent,
      pooler,
      disallowedSessions,
    };
    const heartbeat = spec.ha === null && spec.set === null ? SLOW_HEARTBEAT : options.heartbeat;
    return {
      look: {
        key,
        paths,
        listen,
        listener,
        heartbeat,
        marker,
        server,
        installation,
        files,
        filesAs,
        filesOnceProvisioned,
        pooler: plan,
      },
      seen,
    };
  };

  /** Where a server listens: a single one on the service's port, several behind the gateway. */
  const listenOf = ({ ha, set, endpoint, vpc }: ServiceSpec, n: number): Found['listen'] => {
    const members = ha?.members ?? set?.nodes ?? null;
    return members === null
      ? { address: listenerFor({ vpc }).address, port: endpoint.port }
      : {
          address: LOOPBACK,
          port: members.find((member) => member.n === n)?.port ?? endpoint.port,
        };
  };

  const filesFor = (
    spec: ServiceSpec,
    paths: InstancePaths,
    listen: Found['listen'],
    listener: Listener,
    installation: Installation,
    owner: Owner | null,
  ): ConfigFiles =>
    configFiles(
      {
        paths,
        installation,
        extensions: extensionsOf(spec.addons),
        size: spec.size,
        storageGb: spec.storageGb,
        listen,
        allowedNetworks: spec.ha === null && spec.set === null ? listener.allowedNetworks : null,
        replicated: spec.ha !== null || spec.set !== null,
        behindGateway: spec.set !== null,
      },
      configUsersOf(
        owner,
        spec.set !== null && machine.isolation.isolated ? machine.isolation.gateway : null,
      ),
    );

  /** The desired pooler of a service; null: none, or none can be had. */
  const poolerPlan = async (
    spec: ServiceSpec,
    paths: InstancePaths,
    serverPort: number,
    listener: Listener,
    installation: Installation | null,
  ): Promise<PoolerPlan | null> => {
    const program = machine.pgbouncer;
    const certificatePem =
      spec.pooler === null ? null : await readOrNull(join(paths.config, 'server.crt'));
    if (
      spec.pooler === null ||
      program === null ||
      installation === null ||
      certificatePem === null
    )
      return null;
    const { max_connections: maxConnections } = serverSettings({
      size: spec.size,
      major: installation.major,
      extensions: extensionsOf(spec.addons),
      storageGb: spec.storageGb,
    });
    const { port } = spec.pooler;
    const conf = poolerConf({
      paths: machine.layout.service(spec.id),
      version: program.version,
      listen: { address: listener.address, port },
      allowedNetworks: listener.allowedNetworks,
      server: { paths, port: serverPort, maxConnections: Number(maxConnections) },
      certificatePem,
    });
    return { program, port, conf, listener };
  };

  // ── the interface ──────────────────────────────────────────────────────────────────────────────────────────────

  const converge = async (spec: ServiceSpec, begin: BeginStep): Promise<Verdict> => {
    if (spec.set !== null) return sets.converge(spec, spec.set, begin);
    if (spec.ha !== null) return members.converge(spec, spec.ha, begin);
    const { look: now, seen } = await look(spec);
    // Not having connected yet, after a start of the control plane, is no fault of the service's.
    const reachable = seen.server?.phase === 'ready' && seen.silentMs === null;
    const before: Seen = { reachable, present: seen.directory === 'ours' };
    const step = decide(spec, seen);
    switch (step.kind) {
      case 'settled':
        if (seen.directory === 'ours')
          await Promise.all([pruneLogs(now.paths.logs), capLog(now.paths.pooler)]);
        // It was being made when it was deleted.
        else await removeTree(instancePaths(`${now.paths.root}.new`).root, machine.cloneMethod);
        return { did: null, detail: null, seen: before, outcome: 'settled' };
      case 'wait':
        return { did: null, detail: step.why, seen: before, outcome: 'again', waitMs: step.waitMs };
      case 'refuse':
        return {
          did: null,
          detail: null,
          seen: before,
          outcome: 'failed',
          reason: `${now.paths.root}: ${step.why}`,
        };
      default: {
        const did = STEP_NAME[step.kind];
        await begin(did, before);
        try {
          const detail = await applyStep(executor, spec, step, now);
          if (step.kind === 'reload' && now.listener.allowedNetworks !== null)
            recheckSessionsLater(spec.id);
          return {
            did,
            detail,
            seen: { reachable: monitor.isConnected(spec.id), present: true },
            outcome: 'again',
            waitMs: 0,
          };
        } catch (error) {
          const reason = error instanceof Error ? error.message : String(error);
          if (error instanceof NotYet)
            return { did: null, detail: reason, seen: before, outcome: 'again', waitMs: 100 };
          return {
            did,
            detail: reason,
            seen: { ...before, reachable: false },
            outcome: 'failed',
            reason: `${did}: ${reason}`,
          };
        }
      }
    }
  };

  /** A client that was about to log in when the rules changed gets in by the old ones, up to the server's authentication_timeout later. */
  const recheckSessionsLater = (id: string): void => {
    for (const ms of RECHECK_SESSIONS_MS) setTimeout(() => options.changed(id), ms).unref();
  };

  const remove: Lifecycle['remove'] = async (id, parent, begin) => {
    sets.forget(id);
    const paths = machine.layout.service(id);
    const gone: Seen = { reachable: false, present: false };
    const [server, marker] = await Promise.all([findServer(paths), readMarker(paths)]);
    const children = await provisioningForksOf(keeper, id);
    if (children.length > 0) {
      return {
        did: null,
        detail: `waiting for ${children.join(', ')}, being forked from it`,
        seen: { reachable: false, present: true },
        outcome: 'again',
        waitMs: 500,
      };
    }
    for (const n of await memberNumbers(machine, id)) {
      monitor.forget(memberKey(id, n));
      glances.delete(memberKey(id, n));
      outOfMemory.forget(memberKey(id, n));
    }
    forgetBackups(keeper, id);
    forgetQuota(quotas, id, await memberNumbers(machine, id));
    for (const n of await memberNumbers(machine, id)) {
      const { data, config } = machine.layout.member(id, n);
      meter.forget(data);
      certificates.forget(config);
    }
    await stopPooler(poolers, paths);
    if (await members.end(id)) {
      return {
        did: null,
        detail: null,
        seen: { reachable: false, present: true },
        outcome: 'again',
        waitMs: 0,
      };
    }
    if (server !== null) {
      await begin('stop PostgreSQL', { reachable: false, present: true });
      // Immediately rather than at once: the server gives its shared memory back.
      await stopInstance(executor, id, paths, server, 'immediate');
      return {
        did: 'stop PostgreSQL',
        detail: null,
        seen: { reachable: false, present: true },
        outcome: 'again',
        waitMs: 0,
      };
    }
    if (parent !== null) {
      try {
        await sets.dropSlots(id, parent);
      } catch (error) {
        if (!(error instanceof NotYet)) throw error;
        return {
          did: null,
          detail: error.message,
          seen: { reachable: false, present: true },
          outcome: 'again',
          waitMs: 100,
        };
      }
    }
    await removeTree(instancePaths(`${paths.root}.new`).root, machine.cloneMethod);
    if (marker?.id === id) {
      await begin('remove data', { reachable: false, present: true });
      await removeLinkedArchive(paths);
      await discard(machine, id, paths.root);
      if (machine.isolation.isolated && marker.uid !== null)
        await releaseUser(machine.isolation.users, marker.uid, paths.root);
      return { did: 'remove data', detail: null, seen: gone, outcome: 'again', waitMs: 0 };
    }
    for (const key of (await groupIds(machine.limits)).filter(
      (group) => partsOfKey(group).id === id,
    ))
      await removeLimits(machine.limits, key);
    return { did: null, detail: null, seen: gone, outcome: 'settled' };
  };

  const supports = (addons: readonly Addon[]): TypeCapability => {
    const installation = installationFor(installations, addons);
    return installation === null
      ? { missing: missingFor(installations, addons) }
      : { version: installation.version };
  };

  const typeCapabilities = (): Record<ServiceType, TypeCapability> => ({
    TIMESCALEDB: supports(ADDONS_OF_TYPE.TIMESCALEDB),
    POSTGRES: supports(ADDONS_OF_TYPE.POSTGRES),
    VECTOR: supports(ADDONS_OF_TYPE.VECTOR),
  });

  const capabilities: Capabilities = {
    engine: 'local',
    types: typeCapabilities(),
    pooler:
      machine.pgbouncer === null
        ? { missing: MISSING_POOLER }
        : { version: machine.pgbouncer.version },
    gateway: options.gateway,
    vpc: machine.networks,
    storage: { method: 'measured', note: QUOTA_NOTE },
    isolation: {
      isolated: machine.isolation.isolated,
      note: isolationNote(
        machine.isolation.isolated ? null : machine.isolation.why,
        machine.sandbox,
        machine.egress,
      ),
    },
    limitsEnforced: machine.limits.kind !== 'none',
    limitsNote: limitsNote(machine.limits),
    cloneMethod: machine.cloneMethod,
    forkCost: CLONE_COST[machine.cloneMethod],
  };

  /** The server whose log is shown for a service: its primary, or the first node of a set. */
  const firstNode = async (id: string): Promise<number> => {
    const primary = machine.layout.primaryOf(id);
    const numbers = await memberNumbers(machine, id);
    return numbers.includes(primary) ? primary : Math.min(...numbers, 1);
  };

  /** Whether the process that clients reach is there: of a set its gateway. */
  const runs = async (id: string): Promise<boolean> =>
    (await findServer(primaryPaths(id))) !== null ||
    (!existsSync(primaryPaths(id).data) && (await findDaemon(machine.layout.gateway(id))) !== null);

  const prepare = async (): Promise<void> => {
    await sweepCopies(verifications);
    if (machine.isolation.isolated) await reclaimUsers(machine.isolation.users);
    for (const entry of await readdir(machine.layout.trash))
      await removeTree(join(machine.layout.trash, entry), machine.cloneMethod);
    let usual: Template | null = null;
    for (const type of SERVICE_TYPES) {
      const installation = installationFor(installations, ADDONS_OF_TYPE[type]);
      if (installation === null || closing) continue;
      const template = await templates.ensure(installation, extensionsOf(ADDONS_OF_TYPE[type]));
      usual ??= template;
    }
    if (usual !== null) precloned.fillSoon(usual);
  };

  return {
    capabilities,
    lifecycle: { supports, prepare, runs, plan: planOf, converge, remove },
    addresses: { isFree: (port) => portIsFree(options.listenAddress, port) },
    networks: {
      converge: (specs) =>
        machine.networks.method === 'bridge'
          ? makeNetworks(machine.networkPrefix, machine.layout.root, specs, options.egress.refuseIn)
          : Promise.resolve([]),
    },
    sql: {
      setPassword: async (id, verifier) => {
        try {
          await setPassword(primaryPaths(id), alterPassword(verifier));
        } catch (error) {
          if (error instanceof NoAnswer)
            throw new EngineUnavailable(error.message, { cause: error });
          throw error;
        }
      },
      query: async (id, parent, statement) => {
        const primary = parent ?? id;
        const home = {
          key: memberKey(primary, machine.layout.primaryOf(primary)),
          paths: primaryPaths(primary),
        };
        const node = parent === null ? null : await firstNode(id);
        const place =
          node === null
            ? home
            : { key: memberKey(id, node), paths: machine.layout.member(id, node) };
        return reader.read(place, home, statement);
      },
    },
    observe: createObserving({
      machine,
      monitor,
      keeper,
      quotas,
      outOfMemory,
      glances,
      sets,
      clusters: members,
      firstNode,
      readLagLimit: options.readLagLimit,
    }),
    backups: {
      describe: async (id) => {
        const problems = (await backupWarnings(keeper, id)).map(({ message }) => message);
        return describeBackups(
          primaryPaths(id),
          options.backups,
          problems.length === 0 ? null : problems.join('\n'),
        );
      },
      keep: (id, removes) => keepBackups(keeper, id, removes),
      verify: async (spec, runStep, signal) => {
        const marker = await readMarker(machine.layout.service(spec.id));
        const installation = installationOf(installations, marker, spec.addons);
        if (installation === null) throw new Error(missingFor(installations, spec.addons));
        return holdingBackups(keeper, spec.id, () =>
          verifyBackup(verifications, spec, installation, runStep, signal),
        );
      },
    },
    storage: createStorage({ machine, quotas, meter, keeper }),
    close: async () => {
      closing = true;
      precloned.close();
      sets.close();
      members.close();
      monitor.close();
      reader.close();
      poolers.watch.close();
    },
  };
}
