/**
 * The interface of an engine, which runs the services of a region. An engine knows nothing of HTTP,
 * projects or keys.
 *
 * The interface is declarative: the reconciler passes the desired state of a service ({@link
 * ServiceSpec}); the engine observes the service, makes one step towards that state and returns
 * what it did. Every call may be repeated, interrupted at any point and made again after a crash.
 * Long work is divided into steps, each of which ends by itself.
 */
import type {
  Addon,
  Backups,
  Capacity,
  CloneMethod,
  ForkStrategy,
  InstalledExtensions,
  LogEntry,
  Member as MemberState,
  OperationKind,
  QueryResult,
  RegionalAction,
  ReplicaState,
  ServiceExtension,
  ServiceType,
  Size,
  Warning,
  SimulationScript,
} from '@howdah/contract';
import type { ReadLagLimit } from '../config.ts';
import type { Addresses, ServiceSpec, VpcSpec } from './spec.ts';
import type { Adoption } from './adoptable-data.ts';
import type { DiskUsage, StorageQuota } from './disk.ts';
import type { KeepRules } from './keep-rules.ts';
import type { Moves } from './moves.ts';
import type { BackUp, OffMachineBackups } from './off-machine.ts';
import type { Verified } from './restored-backup.ts';
import type { Sleeping } from './sleep.ts';
import type { RunStep } from './run-step.ts';
import type { NoUpgrades, Upgrades } from './upgrades.ts';

export type { DiskPressure, DiskUsage, StorageQuota } from './disk.ts';

/** The step of an operation that performs a drill. */
export const DRILL_STEP = 'drill';
/** The steps that create or drop an extension. */
export const EXTENSION_STEPS = ['create extension', 'drop extension'] as const;

/** One step toward a spec. */
export type Verdict = {
  /**
   * The step, as users read it in the operation ("clone template", "start PostgreSQL"); null:
   * nothing was changed.
   */
  did: string | null;
  /** A detail of the step: figures, or what it waits for. */
  detail: string | null;
  /** The observed state after the step. */
  seen: Seen;
} & (
  | { outcome: 'settled' } // the service is as the spec wants it
  | { outcome: 'again'; waitMs: number } // call again, after a wait
  // the step did not work; the caller backs off and tries again, unless it would fail again
  | { outcome: 'failed'; reason: string; isFinal?: true }
);

/**
 * Called before a step that changes something, with its name and the observed state. The step waits
 * for it, so that the change is announced first. A step that takes long may call it again with a
 * line that says how far it is, and does not wait then.
 */
export type BeginStep = (step: string, seen: Seen, progress?: string) => Promise<void>;

/** Shows a line about a step that takes long. */
export type ShowProgress = (line: string) => void;

/** The observed state of a service, as far as other layers need it. */
export type Seen = {
  /** Whether it accepts connections. */
  reachable: boolean;
  /** Whether anything of it is still on this machine: directory, process, limits. */
  present: boolean;
  /** Whether it has been provisioned, as its data says: users may have written to it. */
  provisioned: boolean;
  /** Whether its server is stopped until a client comes; absent: it is not. */
  asleep?: boolean;
};

/** The kinds of services that a region can run; for the others, why not. */
export type Capabilities = {
  engine: string;
  /**
   * For each set of add-ons: the PostgreSQL version that runs it, or why there is none and the
   * command that installs it.
   */
  types: Record<ServiceType, TypeCapability>;
  /** The major versions of PostgreSQL that are installed, newest first. */
  versions: Record<ServiceType, readonly MajorCapability[]>;
  /** The version of PgBouncer, or that there is none and the command that installs it. */
  pooler: TypeCapability;
  /** The version of HAProxy, or that there is none and the command that installs it. */
  gateway: TypeCapability;
  /** The version of pgBackRest, or why it cannot back up any of `versions`; `note`: which not. */
  offMachine: TypeCapability;
  /**
   * Whether the region archives WAL of its services in an object store, if it has one: the archive
   * outlives the servers of a service, and goes with the service.
   */
  archivesInStore: boolean;
  /** Whether each action is possible for the services here. */
  actions: Record<RegionalAction, Possibility>;
  /**
   * Whether a VPC is a network of its own, in which services have addresses; otherwise it is rules
   * for the addresses of clients. `note` explains it.
   */
  vpc: { isNetwork: boolean; note: string };
  /** How quotas are enforced. */
  storage: { note: string };
  /**
   * Whether services are isolated from each other below PostgreSQL; `note`
   * explains how, or why not.
   */
  isolation: { isolated: boolean; note: string };
  limitsEnforced: boolean;
  limitsNote: string;
  /** Whether a size is a bound of the CPU too, for services that do not say it themselves. */
  boundsCpu: boolean;
  /** The largest server that has room here; null: any size has, or it is not known yet. */
  room: Room | null;
  /** How forks and snapshots are made; `forkCost` explains the cost. */
  cloneMethod: CloneMethod;
  forkCost: string;
};
/**
 * The largest server that a region has room for. `place`: that of the figures, in words; `isNode`:
 * whether it is one node of a cluster, where a pod that is larger by any amount never starts.
 */
export type Room = Capacity & { place: string; isNode: boolean };

/** `note`: what is missing of it, in words. */
export type TypeCapability = { version: string; note?: string } | { missing: string };

/** The PostgreSQL that a new service gets, or why there is none and the command that adds it. */
export type PostgresCapability =
  | { version: string; major: number; note?: string }
  | { missing: string };

/** Whether a major version of PostgreSQL can run a set of add-ons. */
export type MajorCapability = { major: number } & TypeCapability;

/** Whether something is possible, or why not and what adds it. */
export type Possibility = { possible: true } | { possible: false; why: string };

/**
 * How long a server waited since the last time, in thousandths. `neighbours`: how many other
 * services wanted the same meanwhile, in the mean; null: it is not known.
 */
export type Wait = { millis: number; neighbours: number | null };
/** null: it is not measured. */
export type Waits = {
  /** Processes that waited for a processor: 1500 are one and a half, in the mean. */
  cpu: Wait | null;
  /** The part of the time in which its limit held its writes back. */
  writes: Wait | null;
};

/** The resources that a running server of a service uses at one moment. */
export type Usage = {
  /** The number of the server. */
  node: number;
  cpuMillis: number;
  memoryBytes: number;
  storageBytes: number;
  connections: number;
  /** Commits and rollbacks since the statistics began; the sampler turns them into a rate. */
  transactions: number;
  waits: Waits;
  /** The lag of a standby or node; null for a primary. */
  lag: { bytes: number; seconds: number } | null;
};

export type LogQuery = {
  /** Limits of the time of entries: from the first on, before the second; ms since the epoch. */
  sinceMs: number | null;
  untilMs: number | null;
  /** The cursor of the page before. */
  cursor: string | null;
  /** Entries must contain all of these, whatever the case. */
  search: readonly string[];
  /** Entries must have one of these severities; empty: any. */
  severities: readonly string[];
  limit: number;
};
export type LogPage = { entries: LogEntry[]; cursor: string | null };

/**
 * Thrown by {@link Sql.setPassword}, query, logs and usage when the service does not answer; the
 * message says why.
 */
export class EngineUnavailable extends Error {}

/** One statement that only reads. */
export type ReadStatement = {
  sql: string;
  /** A database of users; by default the one that every service has. */
  database?: string;
  /** The text form of each parameter, or null. */
  parameters: readonly (string | null)[];
  maxRows: number;
  timeoutMs: number;
};

/** Thrown by {@link Sql.query} with PostgreSQL's error of the statement. */
export class StatementRefused extends Error {
  readonly sqlstate: string;
  /** In characters of the statement, from 1; null: the error has none. */
  readonly position: number | null;
  readonly detail: string | null;
  readonly hint: string | null;

  constructor(
    message: string,
    facts: {
      sqlstate: string;
      position?: number | null;
      detail?: string | null;
      hint?: string | null;
    },
  ) {
    super(message);
    this.sqlstate = facts.sqlstate;
    this.position = facts.position ?? null;
    this.detail = facts.detail ?? null;
    this.hint = facts.hint ?? null;
  }
}

/** Thrown for a log cursor that is not one of ours. */
export class BadCursor extends Error {}

/**
 * Whether services can run here, and the changes of a service: from its creation to its removal.
 */
export interface Lifecycle {
  /** Whether such a service can run here. @param major null: the region chooses */
  supports(addons: readonly Addon[], major: number | null): PostgresCapability;
  /** Why a service cannot be forked in its present state, in words for its user; null: it can. */
  whyNotForked(parent: string, strategy: ForkStrategy): string | null;
  /**
   * The moment of its parent that a fork was made with, ISO 8601; null: it is not known.
   */
  begunAt(id: string): Promise<string | null>;
  /** The major version of the PostgreSQL that a service's data is of; null: it has no data. */
  majorOf(id: string): Promise<number | null>;
  /**
   * Does ahead the work that a first create of a type would wait for, and removes what a crash left
   * half deleted.
   */
  prepare(): Promise<void>;
  /** Whether the process of a service exists: a cheap check, for many services at a time. */
  runs(id: string): Promise<boolean>;
  /**
   * The steps of a change if nothing prevents them.
   *
   * @param running whether its server runs already
   * @param sizeBefore the size before a resize; for other changes, its size
   */
  plan(kind: OperationKind, spec: ServiceSpec, running: boolean, sizeBefore: Size): string[];
  /** Why a change that is accepted now would not begin, in words for its user; null: it would. */
  whyNoChanges(): Promise<string | null>;
  /** Makes one step towards the spec. */
  converge(spec: ServiceSpec, begin: BeginStep): Promise<Verdict>;
  /**
   * Makes one step towards removing the service; settled when nothing is left.
   *
   * @param parent the service that a read replica set follows
   */
  remove(id: string, parent: string | null, begin: BeginStep): Promise<Verdict>;
}

/** How a password is changed. */
export type PasswordChange = Readonly<{
  /** Whether the service is paused, so that nothing else starts its server meanwhile. */
  isPaused: boolean;
  /**
   * Whether open sessions of the role stay that are in no way; else they are ended, in all servers
   * of the service and of its sets, and through their poolers.
   */
  keepSessions: boolean;
  /** The ids of its read replica sets. */
  sets: readonly string[];
}>;

/** The sessions that the control plane opens for its users. */
export interface Sql {
  /**
   * Sets the admin role's password to a SCRAM verifier; it is active when the call returns, in a
   * paused service before a client can connect.
   *
   * @throws EngineUnavailable
   */
  setPassword(id: string, verifier: string, change: PasswordChange): Promise<void>;
  /**
   * Why a service that runs cannot have a pooler: its users have taken the name of the role; null:
   * it can.
   *
   * @throws EngineUnavailable
   */
  whyNoPooler(id: string): Promise<string | null>;
  /**
   * Runs one statement as a role that may only read, in a transaction that cannot write and is
   * rolled back.
   *
   * @param parent the service that a read replica set follows
   * @throws EngineUnavailable, StatementRefused
   */
  query(id: string, parent: string | null, statement: ReadStatement): Promise<QueryResult>;
}

/** The extensions of PostgreSQL. */
export interface Extensions {
  /** The extensions of each PostgreSQL of the region; the one that new services get is first. */
  installed(): Promise<Omit<InstalledExtensions, 'region_code'>[]>;
  /**
   * The extensions of the PostgreSQL of a service, and which of them its database has.
   *
   * @throws EngineUnavailable when it runs and does not answer
   */
  of(id: string): Promise<ServiceExtension[]>;
}

/** The state of running services, as users read it. */
export interface Observing {
  /** The problems of a service's backups, and which of its replicas are missing. */
  warnings(id: string): Promise<Warning[]>;
  /**
   * @param node the server whose logs are read; null: the primary
   * @param signal ends the work when its client is gone
   */
  logs(id: string, node: number | null, query: LogQuery, signal: AbortSignal): Promise<LogPage>;
  /** The usage of each running server of a service: first the primary, or a set's first node. */
  usage(id: string): Promise<Usage[]>;
  /** The state of each standby of a service, or of each node of a read replica set. */
  replicas(id: string): Promise<ReplicaState[]>;
  /** The lag up to which a node of a read replica set gets connections. */
  readonly readLagLimit: ReadLagLimit;
  /** The servers of a service, by number, and how they follow the primary. */
  servers(id: string): Promise<MemberState[]>;
  /**
   * The logical slots of users that each standby of a service has synchronised: they go on when the
   * primary changes. null: slots do not go on in this region.
   */
  synchronisedSlots(id: string): Promise<string[] | null>;
}

/** The backups that lost data is restored from. */
export type Restorable = {
  /** null: those of this machine, or of its region. */
  repository: { id: string; name: string } | null;
  /** Where those of its region are; absent: on this machine. */
  place?: string;
  /** Commits up to this moment come back. */
  latestMs: number;
  /** About how long it takes; null: moments. */
  seconds: number | null;
  /** Whether nothing of the service is left on this machine. */
  isLost: boolean;
  /** The data that comes back, if it is not that of the last upgrade: a repository has none yet. */
  before?: { upgrade: string | null; major: number };
};

/** Why data is not restored from backups, in words for users. */
export class NotRestorable extends Error {}

/** The backups of a service that are on its machine. */
export type LocalBackups = Omit<Backups, 'storage' | 'own_retention_days' | 'off_machine'>;

/** Snapshots and archived WAL of services. */
export interface BackupKeeping {
  /** Snapshots, WAL archive and the window of points in time that the service can be forked at. */
  describe(id: string): Promise<LocalBackups>;
  /**
   * The backups that lost data of a service is restored from; null: there are none. It is the data
   * of one of these upgrades, the desired one first; null: of none.
   *
   * @throws NotRestorable when there is another reason; EngineUnavailable
   */
  restorable(id: string, upgrades: readonly (string | null)[]): Promise<Restorable | null>;
  /**
   * Takes a snapshot of a running service if anything was written since the last one, and removes
   * what the window no longer needs and no repository waits for.
   *
   * @returns whether a due snapshot could not be taken; the service has a warning then
   */
  keep(id: string, rules: KeepRules): Promise<boolean>;
  /**
   * Verifies the newest backup of a service, running or not, by restoring it beside the service;
   * the result is kept with that. One runs at a time. It leaves nothing behind, whatever happens.
   *
   * @throws what `signal` was aborted with; Error when there is nothing to restore
   */
  verify(spec: ServiceSpec, runStep: RunStep, signal: AbortSignal): Promise<Verified>;
  /** Performs a backup that is due or asked for; null: the action `runBackup` is impossible. */
  readonly backUp: BackUp | null;
}

/**
 * Archived WAL that gave way to the quota of its service. Within some hours that is one event with
 * an `id`, a UUID, however often it happens.
 */
export type Relief = Readonly<{
  id: string;
  /** Points from before stay until this moment, if they had stayed until then otherwise. */
  untilMs: number;
  /** How often WAL gave way, and when last. */
  count: number;
  lastMs: number;
}>;

/** The disk of the services, and how much of it they use. */
export interface Storage {
  /** How full the disk of the services is; null: they have none in common. */
  readonly disk: (() => Promise<DiskUsage>) | null;
  /**
   * The disk space of a service's data, and how much of it is shared with clones; null: unknown. It
   * may be some minutes old.
   */
  shared(id: string): Promise<Backups['storage']>;
  /** The disk space that a server of a service uses, in bytes; of several, that of the primary. */
  usedBytes(id: string): Promise<number>;
}

/** Keeps services within their quotas, and space on their disk. */
export interface StorageGuard {
  /**
   * Measures the disk space of a service's servers, and enforces their quota.
   *
   * @returns stop: why the service must be paused; changed: whether what
   * it warns of may be different; relief: points in time that were removed since the last call
   */
  keepQuota(
    id: string,
    quota: StorageQuota,
  ): Promise<{ stop: string | null; changed: boolean; relief: Relief | null }>;
  /**
   * Releases the reserve of the disk when it is full, and creates it again when there is space.
   * @returns what was done since the last call or the start; archived WAL removed as a last resort
   */
  keepReserve(): Promise<{
    did: 'released' | 'made' | null;
    heldBytes: number;
    removedWal: readonly { id: string; bytes: number }[];
  }>;
}

/** The networks of VPCs. */
export interface Networks {
  /**
   * Makes all VPCs of the region as desired, and removes what belongs to none of them.
   *
   * @returns the ids of those whose network did not exist
   */
  converge(specs: readonly VpcSpec[]): Promise<string[]>;
}

/** A database in a server that leases share, and the role that can reach it. */
export type LeasedDatabase = Readonly<{ database: string; role: string; verifier: string }>;

/** Copies of services that are taken for tests. */
export interface Leasing {
  /**
   * Names the transactions of a running service that have ended, and the start of its server: as
   * long as the text is the same, so is the data. Transactions of data that was replaced or lost
   * can have the same numbers.
   *
   * @throws EngineUnavailable
   */
  committed(id: string): Promise<string>;
  /**
   * Sets the password of the admin role in a running service that nobody has used yet.
   *
   * @throws EngineUnavailable
   */
  setUnusedPassword(id: string, verifier: string): Promise<void>;
  /** The size of the database of a running service. @throws EngineUnavailable */
  databaseBytes(id: string): Promise<number>;
  /**
   * Makes a database with the data of the service, and a role that can reach only it. Parts
   * that are there already are used.
   *
   * @throws EngineUnavailable
   */
  makeDatabase(id: string, made: LeasedDatabase): Promise<void>;
  /** Drops a database with its sessions, and its role. @throws EngineUnavailable */
  dropDatabase(id: string, dropped: Omit<LeasedDatabase, 'verifier'>): Promise<void>;
  /** The memory of the machine, and how much of it is free. */
  memory(): { freeMemoryBytes: number; memoryBytes: number };
}

export interface Engine {
  readonly capabilities: Capabilities;
  readonly lifecycle: Lifecycle;
  readonly addresses: Addresses;
  readonly upgrades: Upgrades | NoUpgrades;
  /** null: no directory has data of its services. */
  readonly adoption: Adoption | null;
  readonly sql: Sql;
  /** null: they are not listed; what users create themselves stays possible. */
  readonly extensions: Extensions | null;
  readonly observe: Observing;
  readonly backups: BackupKeeping;
  /** null: no repository has backups of its services; the capability `offMachine` says why. */
  readonly offMachine: OffMachineBackups | null;
  readonly storage: Storage;
  /** null: no service can take the space of another. */
  readonly storageGuard: StorageGuard | null;
  /** null: its VPCs are no networks of their own (the capability `vpc`). */
  readonly networks: Networks | null;
  /** null: no leases of its services are taken. */
  readonly leasing: Leasing | null;
  readonly moves: Moves;
  /** null: its services never fall asleep; the action `setAutoSuspend` says why. */
  readonly sleep: Sleeping | null;
  /** null: its services are real. */
  readonly simulation: Simulation | null;
  /** Ends the control plane's own connections; services go on. */
  close(): Promise<void>;
}

// The part of an engine that simulates its services.

/** A simulation: a script of delays and faults, and a clock. */
export interface Simulation {
  /**
   * Checks a script and sets it in place of the one before. Numbers of transitions begin at 1
   * again, and delays that are running end.
   *
   * @param script `{}` delays nothing
   * @throws BadScript with all that is wrong
   */
  setScript(script: unknown): Promise<void>;
  /** The script as it was set. */
  script(): Promise<SimulationScript>;
  /** The time of the clock, in ms since the epoch. */
  nowMs(): Promise<number>;
  /** Lets time pass at once: delays end, and events of the script happen at their times. */
  advance(ms: number): Promise<void>;
}

/** The script is not one; the message has a line for each problem. */
export class BadScript extends Error {}
