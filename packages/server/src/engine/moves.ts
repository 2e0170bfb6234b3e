/** Moves of services from one region to another, as far as they concern the engines. */
import type { Endpoint, ServiceSpec } from './spec.ts';

/** An extension in one version. */
export type ExtensionVersion = Readonly<{ name: string; version: string }>;

/**
 * The data of a service that a move would copy, page by page. Its owner may be hostile: names are
 * input.
 */
export type MovedData = {
  /** The architecture of its machine, in Kubernetes' words: amd64, arm64. */
  architecture: string;
  /** The size of its databases. */
  bytes: number;
  /** The names of roles, without those that an earlier move has made for a region. */
  roles: readonly string[];
  /** Extensions of any database. */
  extensions: readonly ExtensionVersion[];
  /** Roles whose sessions are read-only by a setting that a module of its machine enforces. */
  readOnlyRoles: readonly string[];
  /** Settings of ALTER SYSTEM, which are in a copy. */
  systemSettings: readonly string[];
  /** Logical replication slots, which a copy does not have. */
  slots: readonly string[];
  /** Whether it has the database of its connection string, which its owner can drop. */
  hasDatabase: boolean;
  /** Databases that no session can read, and those beyond the number that is read. */
  unreadDatabases: readonly string[];
  /** Unlogged tables and sequences, which are empty in a copy. */
  unlogged: readonly string[];
  /** Collations of indexes and partitions whose order depends on a version of glibc or ICU. */
  collations: readonly string[];
};

/** Where the servers of a region run. A service moves from one to the other. */
export type MovePlace = 'machine' | 'cluster';

/** The data of other regions that a region can take. */
export type MoveTarget = {
  readonly place: MovePlace;
  /** The architectures of the machines that may run its servers. */
  architectures: readonly string[];
  /** The contributed modules of PostgreSQL, which each of its images has. */
  modules: readonly string[];
  /** Other extensions of its images, by major version, as its operator has named them. */
  extensions: Readonly<Record<number, readonly string[]>>;
  /**
   * Those that the image of the copy has indeed; null: there is no copy that could be asked yet.
   */
  versions: readonly ExtensionVersion[] | null;
  /** The names of roles that it makes, or that its operator needs. */
  ownRoles: readonly string[];
  /** Missing parts that its operator must add first, as `howdah region doctor` names them. */
  missing: readonly string[];
};

/** Why services do not move there, or from there, in words for users. */
export type Unmovable = { readonly why: string };

/**
 * The role that a copy logs in as, to replicate, and that CloudNativePG needs in it. It is a
 * superuser, so that no tenant can make it or become it.
 */
export const COPY_ROLE = 'postgres';

/** The application_name of a copy on a machine: other standbys have the same role. */
export const COPY_APPLICATION = 'howdah_copy';

/**
 * The roles that are made in a service for its copy. An abort drops them, also if the target is not
 * there any more.
 */
export const MOVE_ROLES: readonly string[] = [COPY_ROLE, 'streaming_replica', 'howdah_control'];

/** CloudNativePG makes them, gives them rights, and takes those that it finds. */
export const OPERATOR_ROLES: readonly string[] = ['cnpg_metrics_exporter', 'cnpg_pooler_pgbouncer'];

/**
 * What a region needs in the data of a service before it is copied. The statements are those of a
 * superuser, and can be repeated.
 */
export type MoveRoles = {
  /** Names that no role of a tenant may have. */
  readonly reserved: readonly string[];
  /** Makes the roles, in one transaction that first locks the catalogs of roles. */
  readonly roles: readonly string[];
  /** The statements for other databases, which need the roles. */
  readonly databases: readonly Readonly<{ name: string; sql: readonly string[] }>[];
};

/**
 * How a copy logs in to the service, as far as that is known before the copy is prepared.
 *
 * A region on Kubernetes has a certificate for replication: nothing is made in the service. A
 * service on a machine gets roles instead, see {@link MoveRoles}.
 */
export type CopyLogin = {
  /** The verifier of the admin role; null: the role has none, or the copy does not need it. */
  verifier: string | null;
  /** The certificate of a role that may replicate; null: the copy gets roles. */
  certificate: ClientCertificate | null;
};

/** A client certificate, and what its server shows. All are PEM. */
export type ClientCertificate = Readonly<{
  user: string;
  certificatePem: string;
  keyPem: string;
  /** The authority of the certificate of the server, for the name of its endpoint. */
  authorityPem: string;
}>;

/** How far a copy is. */
export type CopyProgress = {
  /** Whether the copy may log in. */
  mayLogIn: boolean;
  /** How much of the WAL it has not replayed; null: it does not stream. */
  lagBytes: number | null;
};

/** Thrown for a service that cannot move, in words for its user: it is not tried again. */
export class MoveRefused extends Error {}

/** @returns the names that no role of a tenant may have */
export type Keep = (verifier: string | null) => Promise<MoveRoles['reserved']>;

/** How far a switch is. */
export type Stopping = {
  /** Whether its time is over: a service that still runs is not stopped any more. */
  readonly isOver: boolean;
  /** Whether the password was kept before: a server that is stopped was stopped by the move. */
  readonly isKept: boolean;
  readonly keep: Keep;
};

/**
 * The end of the WAL of a service that was stopped in order.
 *
 * A number: the position of its last record. `shutdown`: the copy must see the record by which the
 * server was shut down.
 */
export type WalEnd = bigint | 'shutdown';

/** The part of its service that a copy has. */
export type CopyPosition = {
  /** Whether it still follows: false: somebody has promoted it. */
  isFollowing: boolean;
  /** Whether its operator restarts it soon, with the settings of a server that was promoted. */
  awaitsRestart: boolean;
  replayed: bigint;
  /** Whether its WAL ends with the shutdown of its service, and all of it is on its disk. */
  hasShutdown: boolean;
};

/** The endpoint that a service had, and the one that it has. */
export type MovedEndpoint = Readonly<{ former: Endpoint; current: Endpoint }>;

/** The source of moves. Each call may be repeated. @throws EngineUnavailable */
export type MoveSource = {
  /** Reads what a move of a running service would copy. */
  readonly read: (id: string) => Promise<MovedData>;
  readonly login: (id: string) => Promise<CopyLogin>;
  /** Takes from its owner the rights whose effects the target cannot enforce, within a minute. */
  readonly withhold: (id: string) => Promise<void>;
  /** Gives back what {@link MoveSource.withhold} has taken, in a service that runs, likewise. */
  readonly giveBack: (id: string) => Promise<void>;
  /** Makes the roles of a copy. @throws MoveRefused when a tenant has one of them */
  readonly admit: (id: string, roles: MoveRoles) => Promise<void>;
  readonly progress: (id: string) => Promise<CopyProgress>;
  /** Writes what is not on the disk yet, so that a stop takes less time. */
  readonly checkpoint: (id: string) => Promise<void>;
  /**
   * Stops the service in order: nobody can write from then on, and all is sent to the copy.
   *
   * @param stopping `keep` gets the verifier of the admin role, which cannot change from then on
   * @returns where its WAL ends
   * @throws MoveRefused when it may not be stopped, was not stopped in order, or has got something
   *   that a copy has not
   */
  readonly stop: (id: string, stopping: Stopping) => Promise<WalEnd>;
  /**
   * Closes the roles of a copy in a service that runs: nobody can log in as one of them. Then drops
   * them, as far as nothing depends on them.
   */
  readonly dismiss: (id: string) => Promise<void>;
  /**
   * Gives up what a stopped service uses beside its disk, once it has moved away for good. Where
   * that is possible, clients of its former endpoint get an error with the new one from then on.
   */
  readonly retire: (id: string, moved: MovedEndpoint) => Promise<void>;
};

/** The target of moves. Each call may be repeated. @throws EngineUnavailable */
export type MoveTargetRegion = {
  readonly describe: () => Promise<Omit<MoveTarget, 'versions' | 'place'>>;
  /** The extensions that a server of the copy can have, each in each version. */
  readonly versions: (id: string) => Promise<readonly ExtensionVersion[]>;
  /** Keeps how the copy logs in. @returns what the service needs before it does */
  readonly prepare: (spec: ServiceSpec, login: CopyLogin) => Promise<MoveRoles>;
  readonly position: (id: string) => Promise<CopyPosition>;
  /** Removes what only the copy needed. */
  readonly finish: (spec: ServiceSpec) => Promise<void>;
};

/** The moves of services between regions. */
export type Moves = {
  readonly place: MovePlace;
  readonly from: MoveSource | Unmovable;
  readonly to: MoveTargetRegion | Unmovable;
};
