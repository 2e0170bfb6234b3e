/**
 * The engine of a region on Kubernetes: each service is a Cluster of CloudNativePG, whose operator
 * runs it. The capabilities say which actions are not possible.
 */
import type { ForkStrategy } from '@howdah/contract';
import type { Rounds } from '../../lib/rounds.ts';
import type { CertificateAuthority } from '../../lib/tls.ts';
import { takeUsablePort } from '../spec.ts';
import type { Engine, Observing } from '../engine.ts';
import type { ObjectStore } from '../object-store.ts';
import type { KeptLogs, ClusterRecords } from '../records.ts';
import { whyNoChanges, keepAnswers } from './region/answers.ts';
import { createKube } from './api/client.ts';
import type { Connection } from './api/kubeconfig.ts';
import { createArchiver } from './backup/archiver.ts';
import { createBackups, DAY_MS, type SnapshotPolicy } from './backup/backups.ts';
import { createCache } from './region/cache.ts';
import { capabilitiesOf, supports } from './capabilities.ts';
import { keepCertificates, keepPullSecrets } from './region/secrets.ts';
import { createLogKeeper } from './logs/keeper.ts';
import type { RegionSettings } from './region/settings.ts';
import { publicEndpoint, endpointOf } from './network/routes.ts';
import { createMoves } from './move/target.ts';
import { keepRoom } from './region/nodes.ts';
import { createObserving } from './observations.ts';
import { createNetworkGuard } from './network/guard.ts';
import { setPassword } from './password.ts';
import { newMemory, type Region } from './region/region.ts';
import { newestSnapshot } from './backup/state.ts';
import { askChallenge } from './network/challenge.ts';
import { convergeOnce } from './cluster/converge.ts';
import { createFailovers } from './cluster/failovers.ts';
import { createReturns } from './cluster/former-primary.ts';
import type { ClusterState } from './cluster/state.ts';
import { planOf } from './cluster/plan.ts';
import { removeOnce } from './cluster/remove.ts';
import { WAL_VOLUME, whyNotBackedUp } from './backup/origin-snapshots.ts';
import { createStatements, type Statements } from './statements.ts';
import { keepSnapshotClass, nameOf } from './region/storage-classes.ts';
import { nextVerified } from './backup/verification.ts';

export type KubernetesEngineOptions = Readonly<{
  settings: RegionSettings;
  connection: Connection;
  /** Whether this control plane is the only one that writes to the cluster now. */
  mayWrite: () => boolean;
  authority: CertificateAuthority;
  /** Where it records the primaries that it sees. */
  records: ClusterRecords;
  /** Where it keeps server logs beyond their pods. */
  keptLogs: KeptLogs;
  rounds: Rounds;
  readLagLimit: Observing['readLagLimit'];
  /** How often snapshots are taken, and for how long they are kept. */
  backups: SnapshotPolicy;
  /** Where WAL and base backups are kept, as it is set now; null: nowhere. */
  objectStore: () => ObjectStore | null;
  /** Called with the id of a service of which something changed. */
  changed: (id: string) => void;
  /** Called with the error of background work, which is tried again. */
  failed: (error: unknown) => void;
}>;

/** The facets that only a region on a machine has. */
const NOT_HERE = {
  adoption: null,
  storageGuard: null,
  networks: null,
  leasing: null,
  sleep: null,
  simulation: null,
} as const;

/** Begins to follow the cluster; it need not answer yet. */
export function createKubernetesEngine(options: KubernetesEngineOptions): Engine {
  const { settings, connection, mayWrite, authority, records, rounds, failed } = options;
  const kube = createKube(connection, mayWrite);
  const cache = createCache(kube, settings.code, (id) => {
    failovers.notice(id);
    bringBack(id);
    logKeeper.notice(id);
    options.changed(id);
    // The nodes of sets need at least what the servers of their service have.
    cache.setsOf(id).forEach(options.changed);
  });
  const failovers = createFailovers({
    cache,
    records,
    answers: (cluster) => answersAt(settings, cluster, authority),
    primaryChanged: (id) => guard.endLater(id),
    failed,
  });
  const bringBack = createReturns(kube, cache, failed);
  const logKeeper = createLogKeeper({ ...options, kube, cache });
  const snapshotClass = keepSnapshotClass(kube, settings.storageClass, rounds);
  const reach = {
    settings,
    kube,
    cache,
    authority,
    objectStore: options.objectStore,
    retentionDays: Math.max(1, Math.ceil(options.backups.windowMs / DAY_MS)),
  };
  const nodes = keepRoom(kube, rounds);
  const answers = keepAnswers(reach, rounds);
  const archiver = createArchiver(reach, rounds, failed);
  const guard = createNetworkGuard(reach, failed);
  const region: Region = {
    ...reach,
    records,
    failovers,
    answers,
    keptLogs: options.keptLogs,
    logKeeper,
    snapshotClass: snapshotClass.current,
    guard,
    classesRead: Promise.all([snapshotClass.first, cache.listed]).then(() => undefined),
    ...newMemory(),
    readLagLimit: options.readLagLimit,
    archiveProblem: archiver.problem,
  };
  const certificates = keepCertificates(region, rounds, failed);
  const pullSecrets = keepPullSecrets(region, rounds, failed);
  const statements = createStatements(region);
  return {
    get capabilities() {
      const keeping = {
        snapshots: 'name' in snapshotClass.current(),
        archive: cache.hasPlugin() !== false ? options.objectStore() : null,
      };
      return capabilitiesOf(settings, keeping, nodes.room());
    },
    lifecycle: createLifecycle(region),
    upgrades: { why: NO_UPGRADES },
    addresses: createAddresses(settings),
    sql: createSql(region, statements, failed),
    extensions: null,
    observe: createObserving(region, archiver),
    backups: createBackups(region, options.backups, archiver),
    offMachine: null,
    storage: createStorage(region),
    moves: createMoves(region),
    ...NOT_HERE,
    close: async () => {
      const kept = [answers, certificates, pullSecrets, snapshotClass, nodes];
      const watching = [archiver, statements, guard, failovers, logKeeper];
      for (const part of [...kept, ...watching, cache, kube]) await part.close();
    },
  };
}

const createAddresses = (settings: RegionSettings): Engine['addresses'] => ({
  // Kubernetes refuses a Service whose port another one has; those are outside of our range.
  reserve: async (ports, { id, poolerOf }) =>
    settings.domain === null
      ? { host: poolerOf ?? settings.host, port: await takeUsablePort(ports, async () => true) }
      : publicEndpoint(settings.domain, id, poolerOf === null ? 'servers' : 'pooler'),
  isCurrent: ({ host }) =>
    settings.domain === null ? host === settings.host : host.endsWith(`.${settings.domain}`),
});

/** Whether PostgreSQL answers at the endpoint of a Cluster. */
async function answersAt(
  settings: RegionSettings,
  cluster: ClusterState,
  { certificatePem }: CertificateAuthority,
): Promise<boolean> {
  const endpoint = endpointOf(settings, cluster);
  if (endpoint === null) return false;
  return askChallenge(endpoint, certificatePem).then(
    () => true,
    () => false,
  );
}

/** Why the data of a service cannot be had; null: it can. */
function whyNotForked(
  { cache, snapshotClass }: Region,
  parent: string,
  strategy: ForkStrategy,
): string | null {
  // The call has examined the window.
  if (strategy === 'PITR') return null;
  const hasWalVolume = cache.cluster(parent)?.walClass != null;
  if (strategy === 'LAST_SNAPSHOT' && hasWalVolume) return `${WAL_VOLUME}: use PITR or NOW`;
  if (strategy === 'LAST_SNAPSHOT' && 'missing' in snapshotClass())
    return 'its region has no snapshots of volumes (howdah region doctor says why): use PITR';
  if (strategy === 'LAST_SNAPSHOT')
    return newestSnapshot(cache.backups(parent)) === null
      ? 'it has no snapshot yet: the first one is taken a minute or two after it is READY'
      : null;
  const isPaused = cache.cluster(parent)?.desired?.running === false;
  if (isPaused && hasWalVolume) return `the service is PAUSED, and ${WAL_VOLUME}; start it first`;
  if (!isPaused || 'name' in snapshotClass()) return null;
  return (
    'the service is PAUSED, and its region has no snapshots of volumes (howdah region doctor ' +
    'says why); start it first'
  );
}

const NO_UPGRADES =
  'the data of a service on Kubernetes stays in its major version: create a service of the newer ' +
  'one, and copy the data with pg_dump';

function createLifecycle(region: Region): Engine['lifecycle'] {
  const { cache, settings } = region;
  return {
    supports: (addons, major) => supports(settings, addons, major),
    whyNotForked: (parent, strategy) => whyNotForked(region, parent, strategy),
    begunAt: async () => null,
    majorOf: async (id) => cache.cluster(id)?.desired?.major ?? null,
    prepare: async () => undefined,
    // Without an answer of the cluster, nothing is known to have ended. Fenced pods look ready.
    runs: async (id) =>
      cache.staleWhy() !== null ||
      (cache.cluster(id)?.fenced !== true && cache.servers(id).some(({ ready }) => ready)),
    plan: (kind, spec, ...more) => {
      const existing = {
        cluster: cache.cluster(spec.id),
        servers: cache.servers(spec.id),
        parent: cache.cluster(spec.origin?.parent ?? spec.set?.parent ?? ''),
        whyNoBackup: whyNotBackedUp(region, spec.origin?.parent),
        snapshotClass: nameOf(region.snapshotClass()),
        verified: nextVerified(region, spec.id),
      };
      return planOf(existing, kind, spec, ...more);
    },
    whyNoChanges: () => whyNoChanges(region),
    converge: (spec, begin) => convergeOnce(region, spec, begin),
    remove: (id, parent, begin) => removeOnce(region, id, parent, begin),
  };
}

function createSql(
  region: Region,
  statements: Statements,
  failed: (error: unknown) => void,
): Engine['sql'] {
  return {
    setPassword: (id, verifier, change) => setPassword(region, id, verifier, change, failed),
    // The role is made with the Cluster: no user can have taken its name.
    whyNoPooler: async () => null,
    query: (id, _parent, statement) => statements.run(id, statement),
  };
}

function createStorage({ cache }: Region): Engine['storage'] {
  return {
    // A storage class has no size: a volume that cannot be had says so in its own pod.
    disk: null,
    shared: async () => null,
    // The size of the volume, which cannot become smaller.
    usedBytes: async (id) => (cache.cluster(id)?.desired?.storageGb ?? 0) * 1e9,
  };
}
