/**
 * The interface of an engine: what runs services in a region. An engine knows nothing of HTTP, projects or keys.
 *
 * It is declarative: the reconciler hands it the desired state of a service ({@link ServiceSpec}), the engine looks at what is,
 * takes one step towards it and says what it did. Every call may be repeated, interrupted at any point and made again
 * after a crash. Long work is cut into steps that each end by themselves.
 */
import type {
  Addon,
  Backups,
  CloneMethod,
  DrillKind,
  ForkStrategy,
  LogEntry,
  Member as MemberState,
  OperationKind,
  OperationStep,
  QueryResult,
  ReplicaState,
  ServiceType,
  Size,
  StorageMethod,
  Verification,
  VpcMethod,
  Warning,
} from '@howdah/contract';
import type { ReadLagLimit } from '../config.ts';

/** Everything an engine needs to know of a service. */
export type ServiceSpec = {
  id: string;
  addons: readonly Addon[];
  size: Size;
  /** What each of its servers may take of the disk, in gigabytes. */
  storageGb: number;
  /** Whether it must run. */
  power: 'running' | 'paused';
  /** Where clients connect; reserved when the create was accepted, never changed. */
  endpoint: Endpoint;
  /**
   * The SCRAM verifier of the admin role's first password; set once, when the service is provisioned.
   * Null for a spare, which is kept running and provisioning until somebody claims it.
   */
  firstVerifier: string | null;
  /** What it begins with; null: an empty database. */
  origin: Origin | null;
  /** Where its connection pooler listens, on the host of the endpoint; null: it has none. */
  pooler: { port: number } | null;
  /** Its members; null: one server, which listens on the endpoint's port itself. */
  ha: HighAvailability | null;
  /** The VPC that it is in; null: its endpoint is open to all. */
  vpc: ServiceVpc | null;
  /** Of a read replica set: whom it follows, and its nodes; null: it is a service of its own. */
  set: { parent: string; nodes: readonly Member[] } | null;
};

/** A service in a VPC: its listeners stand there, each on the port that it has anyway. */
export type ServiceVpc = {
  id: string;
  /** Its own address in the VPC, by which all its listeners are reached; null: that of its endpoint, under rules on its clients' addresses. */
  address: string | null;
  /** The networks whose clients are let in: the VPC's own, and those that it is peered with. */
  allowedNetworks: readonly string[];
};

/** The desired state of a VPC. */
export type VpcSpec = {
  id: string;
  /** For example 10.1.0.0/16. */
  cidr: string;
  /** The addresses of services in it. */
  addresses: readonly string[];
  /** The networks that it is peered with. */
  peers: readonly { id: string; cidr: string }[];
};

/** A server of a service: its number, and its port of the loopback address. */
export type Member = { n: number; port: number };

/** Several servers, of which one accepts writes and the others follow it, behind a gateway on the endpoint's port. */
export type HighAvailability = {
  members: readonly Member[];
  /** The number of the primary, as it is in the metadata database. */
  primary: number;
  /** The number of synchronous standbys: those that have every acknowledged write. */
  sync: number;
  /** A member that must no longer be the primary; null: the current one may stay. */
  leave: number | null;
  /** A requested drill. */
  drill: DrillKind | null;
};

/** What a fork begins with: the state of another service at this moment, of its last snapshot, or as it was at a point in time. */
export type Origin = { parent: string; strategy: ForkStrategy; targetTime: string | null };

/** What an engine has the metadata database do at once, without waiting for the next look. */
export type PrimaryStore = {
  /** Tells users that the primary died, and that another is about to take over. */
  begin: (id: string) => Promise<void>;
  /** Makes another member the primary, if `from` is. @returns who is the primary from now on; null: the service is gone */
  promote: (id: string, from: number, to: number) => Promise<number | null>;
  /** The recorded primary; null: the service is gone. */
  primary: (id: string) => Promise<number | null>;
  /** Tells users what was done. @param why nobody took over; null: the service accepts writes again */
  end: (id: string, steps: readonly OperationStep[], why: string | null) => Promise<void>;
  /** Removes the request for a drill. @returns whether there was one */
  takeDrill: (id: string) => Promise<boolean>;
};

/** The step of an operation that performs a drill. */
export const DRILL_STEP = 'drill';

export type Endpoint = { host: string; port: number };

/** One step toward a spec. */
export type Verdict = {
  /** The step, in words a user reads in the operation ("clone template", "start PostgreSQL"); null when it only looked. */
  did: string | null;
  /** A detail of the step: figures, or what it waits for. */
  detail: string | null;
  /** What the service looks like after the step. */
  seen: Seen;
} & (
  | { outcome: 'settled' } // the service is as the spec wants it
  | { outcome: 'again'; waitMs: number } // call again, after a wait
  | { outcome: 'failed'; reason: string } // the step did not work; the caller backs off and tries again
);

/** Called before a step that changes something, with its name and what was seen; awaited, so that the change is announced first. */
export type BeginStep = (step: string, seen: Seen) => Promise<void>;

/** Does a part of longer work and shows it: its name, and in the end the line that it returns, or why it failed, which it throws on. */
export type RunStep = (name: string, work: () => Promise<string>) => Promise<void>;

/** What was seen of a service, as far as anybody outside the engine is concerned. */
export type Seen = {
  /** Whether it accepts connections. */
  reachable: boolean;
  /** Whether anything of it is still on this machine: directory, process, limits. */
  present: boolean;
};

/** What a region can run, and for what it cannot, why. */
export type Capabilities = {
  engine: string;
  /** For each set of add-ons: the PostgreSQL version that runs it, or why none here does and the command that adds it. */
  types: Record<ServiceType, TypeCapability>;
  /** The version of PgBouncer, or that there is none and the command that installs it. */
  pooler: TypeCapability;
  /** What stands before the members of a service. */
  gateway: TypeCapability;
  /** How VPCs keep other clients out; `note` explains it. */
  vpc: { method: VpcMethod; note: string };
  /** How quotas are enforced; `note` explains it. */
  storage: { method: StorageMethod; note: string };
  /** Whether services are kept from each other below PostgreSQL, and in words how, or what is in the way. */
  isolation: { isolated: boolean; note: string };
  limitsEnforced: boolean;
  limitsNote: string;
  /** How forks and snapshots are made; `forkCost` explains the cost. */
  cloneMethod: CloneMethod;
  forkCost: string;
};
export type TypeCapability = { version: string } | { missing: string };

/** One look at what a running server of a service uses. */
export type Usage = {
  /** The number of the member or node. */
  node: number;
  cpuMillis: number;
  memoryBytes: number;
  storageBytes: number;
  connections: number;
  /** Commits and rollbacks since the statistics began; the sampler turns them into a rate. */
  transactions: number;
  /** Of one that follows. */
  lag: { bytes: number; seconds: number } | null;
};

export type DiskUsage = {
  totalBytes: number;
  freeBytes: number;
  usedPercent: number;
  path: string;
};

export type StorageQuota = {
  /** Of each server. */
  quotaBytes: number;
  /** Whether the disk is full, and nothing may grow. */
  frozen: boolean;
  /** Whether backups may be removed to make room: a requested fork may need one. */
  removes: boolean;
};

export type LogQuery = {
  /**
   * Limits of the time of entries, the first inclusive, the second exclusive; ms since the epoch.
   */
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

/** Thrown by {@link Engine.setPassword}, query, logs and usage when the service does not answer; the message says why. */
export class EngineUnavailable extends Error {}

/** One statement that only reads. */
export type ReadStatement = {
  sql: string;
  /** The text form of each parameter, or null. */
  parameters: readonly (string | null)[];
  maxRows: number;
  timeoutMs: number;
};

/** Thrown by {@link Engine.query} with PostgreSQL's error of the statement. */
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

export interface Engine {
  readonly capabilities: Capabilities;
  /** Whether a service with these add-ons can run here. */
  supports(addons: readonly Addon[]): TypeCapability;
  /** Whether nothing else on the machine holds this port; asked before it is promised to a client. */
  portIsFree(port: number): Promise<boolean>;
  /** Whether the process of a service is there: a cheap look, for many services at a time. */
  runs(id: string): Promise<boolean>;
  /**
   * The steps of a change if nothing prevents them.
   *
   * @param running whether its server runs already
   * @param keepsSize whether a resize changes nothing but the storage quota
   */
  plan(kind: OperationKind, spec: ServiceSpec, running: boolean, keepsSize: boolean): string[];
  /** Makes one step towards the spec. */
  converge(spec: ServiceSpec, begin: BeginStep): Promise<Verdict>;
  /** One step toward nothing of the service being left; settled when nothing is. @param parent of a read replica set, whom it follows */
  remove(id: string, parent: string | null, begin: BeginStep): Promise<Verdict>;
  /**
   * Makes all VPCs of the region as desired, and removes what belongs to none of them.
   *
   * @returns the ids of those whose network did not exist
   */
  convergeVpcs(specs: readonly VpcSpec[]): Promise<string[]>;
  /** Sets the admin role's password to a SCRAM verifier; it is active when the call returns. */
  setPassword(id: string, verifier: string): Promise<void>;
  /**
   * Runs one statement as a role that may only read, in a transaction that cannot write and is rolled back.
   *
   * @param parent the service that a read replica set follows
   * @throws EngineUnavailable, StatementRefused
   */
  query(id: string, parent: string | null, statement: ReadStatement): Promise<QueryResult>;
  /** Its snapshots, the archive, and the window between which it can be forked at a point in time. */
  backups(id: string): Promise<Omit<Backups, 'storage'>>;
  /** What its data takes of the disk, and how much of that it shares with clones; null where it cannot be told. Not always fresh. */
  storage(id: string): Promise<Backups['storage']>;
  /**
   * Takes a snapshot of a running service if anything was written since the last one, and removes what the window needs no more.
   *
   * @param removes whether anything may be removed: a requested fork may need it
   * @returns whether a due snapshot could not be taken; the service has a warning then
   */
  keepBackups(id: string, removes: boolean): Promise<boolean>;
  /**
   * Verifies the newest snapshot of a service, running or not, by restoring it beside it; what became of that stands on the snapshot. One at a
   * time. Nothing is left of it, whatever happens.
   *
   * @throws what `signal` was aborted with; Error when there is nothing to restore
   */
  verifyBackup(spec: ServiceSpec, runStep: RunStep, signal: AbortSignal): Promise<Verification>;
  /** The problems of a service's backups, and which of its replicas are missing. */
  warnings(id: string): Promise<Warning[]>;
  /** How full the disk is that services stand on. */
  disk(): Promise<DiskUsage>;
  /** What a server of a service takes of the disk, in bytes; of several the one that accepts writes. */
  usedStorage(id: string): Promise<number>;
  /**
   * Measures the disk space of a service's servers, and enforces their quota.
   *
   * @returns stop: why the service must be paused; changed: whether what it warns of may be different
   */
  keepQuota(id: string, quota: StorageQuota): Promise<{ stop: string | null; changed: boolean }>;
  /** Gives the reserve of the disk up when it is full, and makes it again when there is space. @returns what was done since the last call, or the start */
  keepReserve(): Promise<{ did: 'released' | 'made' | null; heldBytes: number }>;
  /**
   * @param node the member whose logs are read; null: the primary
   * @param signal ends the work when its client is gone
   */
  logs(id: string, node: number | null, query: LogQuery, signal: AbortSignal): Promise<LogPage>;
  /** Of each server of a service that runs; the first is the one that accepts writes, or a set's first node. */
  usage(id: string): Promise<Usage[]>;
  /** What each that follows does: members of a service, nodes of a read replica set. */
  replicas(id: string): Promise<ReplicaState[]>;
  /** The lag up to which a node of a read replica set gets connections. */
  readonly readLagLimit: ReadLagLimit;
  /** The servers of a service, by number, and how they follow the primary. */
  members(id: string): Promise<MemberState[]>;
  /** Does ahead what a first create of a type would wait for, and takes away what a crash left half deleted. */
  prepare(): Promise<void>;
  /** Ends the control plane's own connections; services go on. */
  close(): Promise<void>;
}
