/**
 * The interface of an engine: what runs services in a region. An engine knows nothing of HTTP, projects or keys.
 *
 * It is declarative: the reconciler hands it what a service shall be ({@link ServiceSpec}), the engine looks at what is,
 * takes one step towards it and says what it did. Every call may be repeated, cut short at any point and made again
 * after a crash. Long work is cut into steps that each end by themselves.
 */
import type { Addon, Backups, ForkStrategy, LogEntry, ServiceType, Size } from '@howdah/contract';

/** Everything an engine needs to know of a service. */
export type ServiceSpec = {
  id: string;
  addons: readonly Addon[];
  size: Size;
  /** Whether it shall run. */
  power: 'running' | 'paused';
  /** Where clients reach it; reserved when the create was accepted, never changed. */
  endpoint: Endpoint;
  /**
   * The SCRAM verifier of the admin role's first password; set once, when the service is born.
   * Null for a spare, which is kept running and unborn until somebody claims it.
   */
  firstVerifier: string | null;
  /** What it begins with; null: an empty database. */
  origin: Origin | null;
};

/** What a fork begins with: the state of another service at this moment, of its last snapshot, or as it was at a point in time. */
export type Origin = { parent: string; strategy: ForkStrategy; targetTime: string | null };

export type Endpoint = { host: string; port: number };

/** One step toward a spec. */
export type Verdict = {
  /** The step, in words a user reads in the operation ("clone template", "start PostgreSQL"); null when it only looked. */
  did: string | null;
  /** A line more about the step: figures, or what is being waited for. */
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

/** What was seen of a service, as far as anybody outside the engine is concerned. */
export type Seen = {
  /** Whether it accepts connections. */
  reachable: boolean;
  /** Whether any of it is on this machine still: directory, process, limits. */
  present: boolean;
};

/** What a region can run, and for what it cannot, why. */
export type Capabilities = {
  engine: string;
  /** For each set of add-ons: the PostgreSQL version that runs it, or why none here does and the command that adds it. */
  types: Record<ServiceType, TypeCapability>;
  limitsEnforced: boolean;
  limitsNote: string;
};
export type TypeCapability = { version: string } | { missing: string };

/** One look at what a running service uses. */
export type Usage = {
  cpuMillis: number;
  memoryBytes: number;
  storageBytes: number;
  connections: number;
  /** Commits and rollbacks since the statistics began; the sampler turns them into a rate. */
  transactions: number;
};

export type DiskUsage = { totalBytes: number; freeBytes: number; usedPercent: number; path: string };

export type LogQuery = {
  /** Only entries at or after, and before; milliseconds since the epoch. */
  sinceMs: number | null;
  untilMs: number | null;
  /** From the page before. */
  cursor: string | null;
  /** Entries must contain all of these, whatever the case. */
  search: readonly string[];
  /** Entries must have one of these severities; empty: any. */
  severities: readonly string[];
  limit: number;
};
export type LogPage = { entries: LogEntry[]; cursor: string | null };

/** Thrown by {@link Engine.setPassword}, logs and usage when the service does not answer; the message says why. */
export class EngineUnavailable extends Error {}

/** Thrown for a log cursor that is none of ours. */
export class BadCursor extends Error {}

export interface Engine {
  readonly capabilities: Capabilities;
  /** Whether a service with these add-ons can run here. */
  supports(addons: readonly Addon[]): TypeCapability;
  /** Whether nothing else on the machine holds this port; asked before it is promised to a client. */
  portIsFree(port: number): Promise<boolean>;
  /** Whether the process of a service is there: a cheap look, for many services at a time. */
  runs(id: string): Promise<boolean>;
  /** One step toward the spec. */
  converge(spec: ServiceSpec, begin: BeginStep): Promise<Verdict>;
  /** One step toward nothing of the service being left; settled when nothing is. */
  remove(id: string, begin: BeginStep): Promise<Verdict>;
  /** Sets the admin role's password to a SCRAM verifier; live when it returns. */
  setPassword(id: string, verifier: string): Promise<void>;
  /** Its snapshots, the archive, and the window between which it can be forked at a point in time. */
  backups(id: string): Promise<Backups>;
  /** Takes a snapshot of a running service if anything was written since the last one, and removes what the window needs no more. */
  keepBackups(id: string): Promise<void>;
  /** How full the disk is that services stand on. */
  disk(): Promise<DiskUsage>;
  logs(id: string, query: LogQuery): Promise<LogPage>;
  usage(id: string): Promise<Usage>;
  /** Does ahead what a first create of a type would wait for, and takes away what a crash left half deleted. */
  prepare(): Promise<void>;
  /** Ends the control plane's own connections; services go on. */
  close(): Promise<void>;
}
