/**
 * How often everything runs, and the few other figures of the product that are no settings of
 * users. The control plane gets them as an argument; tests pass their own.
 */
import type { Capacity } from '@howdah/contract';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/**
 * All rounds: how long after the end of a run the next one begins, and why then. Most changes
 * are notified as well; their rounds find what a lost notification asked for.
 */
export const ROUNDS = {
  // One for each region, in `reconcile/`.
  dueServices: { everyMs: SECOND_MS, why: 'a wait of a service ends within a second' },
  claims: { everyMs: (10 * SECOND_MS) / 3, why: 'a claim lasts 10 s: two renewals may be lost' },
  deaths: { everyMs: 30 * SECOND_MS, why: 'the monitor reports deaths at once; this finds others' },
  vpcs: {
    everyMs: 30 * SECOND_MS,
    againMs: SECOND_MS,
    why: 'a change is notified; this restores networks that another program removed',
  },
  snapshots: { everyMs: MINUTE_MS, why: 'a snapshot that is due is taken within a minute' },
  samples: { everyMs: MINUTE_MS, why: 'the finest bucket of a series is a minute' },
  warnings: { everyMs: 30 * SECOND_MS, why: 'a problem is shown within a minute' },
  maintenance: { everyMs: 10 * SECOND_MS, why: 'a window begins on the minute' },
  storage: { everyMs: SECOND_MS, why: 'a fast writer fills gigabytes in seconds' },
  shipping: { everyMs: 5 * SECOND_MS, why: 'the loss of this machine loses seconds of WAL' },
  backups: { everyMs: SECOND_MS, why: 'an operation that a user asked for begins at once' },
  verifications: { everyMs: SECOND_MS, why: 'an operation that a user asked for begins at once' },
  dueVerifications: { everyMs: 30 * SECOND_MS, why: 'each service is verified once a day' },
  upgradeTrials: { everyMs: SECOND_MS, why: 'an operation that a user asked for begins at once' },
  expiries: { everyMs: 5 * SECOND_MS, why: 'a service ends within seconds of its time' },
  suspensions: { everyMs: 2 * SECOND_MS, why: 'a service sleeps within seconds of its time' },
  warmForks: { everyMs: SECOND_MS, why: 'the next test takes the place of the one before' },
  leasedDatabases: { everyMs: SECOND_MS, why: 'an end is due to the second' },
  wantedOperations: { everyMs: SECOND_MS, why: 'a cancelled operation ends at once' },

  // One for the control plane.
  history: { everyMs: 10 * MINUTE_MS, why: 'old rows are few in ten minutes' },
  controlSaves: { everyMs: MINUTE_MS, why: 'the loss of this machine loses a minute of changes' },
  webhooks: { everyMs: SECOND_MS, why: 'new events are notified; this finds retries' },
  alerts: { everyMs: 30 * SECOND_MS, why: 'warnings are observed as often' },
  alertMessages: { everyMs: SECOND_MS, why: 'a message is sent within a second' },
  exports: { everyMs: 5 * SECOND_MS, why: 'samples are taken once a minute' },
  apiCertificates: { everyMs: HOUR_MS, why: 'certificates are renewed days before they end' },
  places: { everyMs: 5 * SECOND_MS, why: 'a home that is gone must not be made again' },
  metadataSessions: { everyMs: 3 * SECOND_MS, why: 'a dead session is found within 30 s' },

  // For servers on this machine, in `engine/local/`.
  replicaSetLag: { everyMs: SECOND_MS, why: 'a node that is behind gets no connections' },
  followers: { everyMs: 2 * SECOND_MS, why: 'a standby that fails must not be waited for' },
  poolerDatabases: { everyMs: SECOND_MS, why: 'a new database is reached through the pooler soon' },
  frozenDaemons: { everyMs: 5 * SECOND_MS, why: 'a stopped pooler or gateway is replaced' },
  shares: { everyMs: SECOND_MS / 4, why: 'a neighbour that begins to write waits for one run' },
  egressRules: { everyMs: MINUTE_MS, why: 'rules that another program flushed come back' },
  conversionQuotas: { everyMs: SECOND_MS, why: 'a conversion must not fill the disk' },

  // For each region on Kubernetes, in `engine/kubernetes/`.
  snapshotClasses: { everyMs: 30 * SECOND_MS, why: 'classes come and go with drivers, rarely' },
  nodeCapacity: { everyMs: 30 * SECOND_MS, why: 'a new node is used within a minute' },
  certificates: { everyMs: 6 * HOUR_MS, why: 'certificates are renewed days before they end' },
  clusterAnswers: {
    everyMs: 10 * SECOND_MS,
    why: 'a region that is away is shown within a minute',
  },
  pullSecrets: { everyMs: 30 * SECOND_MS, why: 'other credentials are used by pods that start' },
  archives: { everyMs: 20 * SECOND_MS, why: 'WAL that is not archived is shown within minutes' },
  archiveSizes: { everyMs: 20 * SECOND_MS, why: 'a new archive gets a size; others each hour' },
  keptLogs: { everyMs: MINUTE_MS, why: 'Kubernetes rotates the log of a busy pod in minutes' },

  // For the TLS gateway, a program of its own.
  gatewayLog: {
    everyMs: 10 * SECOND_MS,
    why: 'refused clients are counted, not logged one by one',
  },
} as const satisfies Record<string, Interval & { why: string }>;

export type RoundName = keyof typeof ROUNDS;

/** `againMs`: after a run that failed; default: `everyMs`. */
export type Interval = Readonly<{ everyMs: number; againMs?: number }>;

export type Tuning = Readonly<{
  rounds: Readonly<Record<RoundName, Interval>>;
  /** When a service is backed up to a repository: all of it, and what has changed. */
  repositoryBackups: Readonly<{ fullEveryMs: number; backupEveryMs: number }>;
  /** How long pgBackRest tries a repository that does not answer. */
  repositoryTimeoutSeconds: number;
  /** The wait before a verification in a repository is tried once more. */
  verifyAgainMs: number;
  /** The largest size of the file that keeps disk space for the control plane. */
  reserveMaxBytes: number;
  /** The processors and the memory that the machine counts as having; null: those that it has. */
  capacity: Capacity | null;
}>;

/** The tuning of the product. */
export const TUNING: Tuning = {
  rounds: ROUNDS,
  repositoryBackups: { fullEveryMs: 7 * DAY_MS, backupEveryMs: DAY_MS },
  repositoryTimeoutSeconds: 15,
  verifyAgainMs: 10 * SECOND_MS,
  reserveMaxBytes: 1024 ** 3,
  capacity: null,
};
