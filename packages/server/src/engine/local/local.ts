/** The parts of the local engine, and what they are made with. */
import type { BackupPolicy, FailoverPolicy, ReadLagLimit } from '../../config.ts';
import type { RepositorySource } from '../../repository/source.ts';
import { createCertificateCheck, createIssuer, type CertificateAuthority } from '../../lib/tls.ts';
import type { Rounds } from '../../lib/rounds.ts';
import type { TypeCapability } from '../engine.ts';
import type { ClusterRecords } from '../records.ts';
import { createKeeper, type Keeper } from './backup/keeper.ts';
import { createVerifications } from './backup/verify.ts';
import { createDaemonWatch } from './host/daemon.ts';
import type { Egress } from './host/egress.ts';
import { partsOfKey, type InstancePaths } from './host/layout.ts';
import { groupIds } from './host/limits.ts';
import type { Machine } from './host/machine-record.ts';
import { createRelays } from './relays/relays.ts';
import { createOutOfMemory, readMemoryCounters } from './host/out-of-memory.ts';
import { createQuotas, type Quotas } from './host/quota.ts';
import { createStorageMeter } from './host/space.ts';
import type { Glance } from './host/usage.ts';
import { createMovedNotices } from './network/moved-notices.ts';
import type { Heartbeat } from '../postgres/sessions/monitor.ts';
import { createServerMonitor } from './postgres/server-monitor.ts';
import { createPrecloned, type Precloned } from './postgres/precloned.ts';
import { createReader } from '../postgres/sessions/reader.ts';
import { findServer } from './postgres/server.ts';
import type { Templates } from './postgres/templates.ts';
import { createPoolers } from './proxy/pooler.ts';
import { noticed } from './topology/cluster/failover.ts';
import type { Topology } from './topology/context.ts';
import { createExecutor } from './topology/executor.ts';
import { createMinorVersions, type MinorVersions } from './topology/minor-versions.ts';
import { createStandbys } from './topology/standbys.ts';

export type LocalEngineOptions = {
  machine: Machine;
  templates: Templates;
  authority: CertificateAuthority;
  /** The host of endpoints. */
  endpointHost: string;
  /** The address that servers listen on. */
  listenAddress: string;
  /** The names and addresses that certificates carry. */
  certificateHosts: readonly string[];
  backups: BackupPolicy;
  /** How long data is kept that a recovery has replaced, in ms. */
  asideMs: number;
  gateway: TypeCapability;
  /** How the servers of clusters and sets are watched, and when a standby takes over. */
  heartbeat: Heartbeat;
  failover: FailoverPolicy;
  readLagLimit: ReadLagLimit;
  records: ClusterRecords;
  egress: Egress;
  repositories: RepositorySource;
  rounds: Rounds;
  /** Called when something watched changed by itself, with the service's id. */
  changed: (id: string) => void;
};

/** The parts of the engine. */
export type Local = Readonly<{
  machine: Machine;
  topology: Topology;
  precloned: Precloned;
  keeper: Keeper;
  verifications: ReturnType<typeof createVerifications>;
  outOfMemory: ReturnType<typeof createOutOfMemory>;
  reader: ReturnType<typeof createReader>;
  meter: ReturnType<typeof createStorageMeter>;
  quotas: Quotas;
  minorVersions: MinorVersions;
  notices: ReturnType<typeof createMovedNotices>;
  /** The last figures of each server, by its key: rates are differences. */
  glances: Map<string, Glance>;
}>;

export function createLocal(options: LocalEngineOptions): Local {
  const { machine, templates, authority, rounds, changed } = options;
  const pathsOf = (key: string): InstancePaths => {
    const { id, n } = partsOfKey(key);
    return machine.layout.member(id, n);
  };
  const monitor = createServerMonitor(
    (key) => void noticed(topology, key),
    async (key) => (await findServer(pathsOf(key)))?.postmaster.frozen === true,
  );
  const poolers = createPoolers(machine, monitor, rounds, changed);
  const issuer = createIssuer(authority, options.certificateHosts);
  const precloned = createPrecloned(machine);
  const relays = createRelays(machine.layout, changed);
  const executor = createExecutor({
    machine,
    templates,
    precloned,
    monitor,
    issuer,
    poolers,
    rounds,
    repositories: options.repositories,
    relays,
  });
  const topology: Topology = {
    machine,
    executor,
    monitor,
    poolers,
    templates,
    certificates: createCertificateCheck(authority, options.certificateHosts),
    listenAddress: options.listenAddress,
    heartbeat: options.heartbeat,
    failover: options.failover,
    readLagLimit: options.readLagLimit,
    records: options.records,
    offMachine: () => options.repositories.known().length > 0,
    renewEgress: () => options.egress.renew(),
    changed,
    gateways: createDaemonWatch(rounds, changed),
    standbys: createStandbys(executor),
    clusters: new Map(),
    sets: new Map(),
  };
  return {
    machine,
    topology,
    precloned,
    keeper: createKeeper(machine, monitor, options.backups, options.repositories),
    verifications: createVerifications(machine, monitor),
    outOfMemory: createOutOfMemory(
      (key) => readMemoryCounters(machine.limits, key),
      () => groupIds(machine.limits),
    ),
    reader: createReader(monitor),
    meter: createStorageMeter(machine.cloneMethod),
    quotas: createQuotas(machine, monitor),
    minorVersions: createMinorVersions(machine, monitor),
    notices: createMovedNotices(issuer, options.listenAddress),
    glances: new Map(),
  };
}
