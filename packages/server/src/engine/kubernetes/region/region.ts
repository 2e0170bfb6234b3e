/** A region on Kubernetes: its cluster, and what the engine knows of it. */
import type { CertificateAuthority } from '../../../lib/tls.ts';
import type { Kube } from '../api/client.ts';
import type { Answers } from './answers.ts';
import type { Cache } from './cache.ts';
import type { RegionSettings } from './settings.ts';
import type { Observing } from '../../engine.ts';
import type { ObjectStore } from '../../object-store.ts';
import type { KeptLogs, ClusterRecords } from '../../records.ts';
import type { LogKeeper } from '../logs/keeper.ts';
import type { Failovers } from '../cluster/failovers.ts';
import type { SnapshotClass } from './storage-classes.ts';

export type Region = Readonly<{
  settings: RegionSettings;
  kube: Kube;
  cache: Cache;
  authority: CertificateAuthority;
  records: ClusterRecords;
  failovers: Failovers;
  /** The server logs that are kept beyond their pods. */
  keptLogs: KeptLogs;
  /** Whether its API server and its operator answer. */
  answers: Answers;
  logKeeper: Pick<LogKeeper, 'keepBefore'>;
  /** The class for snapshots of its volumes, as it was a moment ago. */
  snapshotClass: () => SnapshotClass;
  /** Where WAL and base backups of its services are kept; null: nowhere. */
  objectStore: () => ObjectStore | null;
  /** For how long base backups are kept, with the WAL after them. */
  retentionDays: number;
  /** Ends sessions of networks that are not allowed. @throws EngineUnavailable */
  guard: Readonly<{
    enforce: (id: string, networks: readonly string[], isPooled: boolean) => Promise<void>;
  }>;
  /** Ends once the class, backups and the resources of the plugin were looked for. */
  classesRead: Promise<void>;
  /** Services whose PostgreSQL answered at the endpoint since their last change. */
  reached: Set<string>;
  /** Services whose pooler was written and has not answered since, with the name of that step. */
  startingPoolers: Map<string, string>;
  /** The lag up to which a node of a read replica set gets connections. */
  readLagLimit: Observing['readLagLimit'];
  /** Sets whose nodes are not all ready: why they cannot follow, as their log said at that time. */
  followChecks: Map<string, Readonly<{ atMs: number; why: string | null }>>;
  /** The fields of Clusters that others have changed, as texts; of settled services. */
  changedByOthers: Map<string, readonly string[]>;
  /** The last restart of each service that took such fields back. */
  takenBack: Map<string, number>;
  /** Why the WAL of a service is not archived; null: it is, or that is not known. */
  archiveProblem: (id: string) => string | null;
  /** The step or obstacle that a service waits for, and since when; ms since the epoch. */
  waiting: Map<string, Readonly<{ what: string; sinceMs: number }>>;
}>;

/** The parts that a control plane forgets when it ends. */
export const newMemory = (): Pick<
  Region,
  'reached' | 'startingPoolers' | 'followChecks' | 'changedByOthers' | 'takenBack' | 'waiting'
> => ({
  reached: new Set(),
  startingPoolers: new Map(),
  followChecks: new Map(),
  changedByOthers: new Map(),
  takenBack: new Map(),
  waiting: new Map(),
});
