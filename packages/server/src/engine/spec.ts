/** The desired state of services and VPCs, as the control plane passes it to an engine. */
import type { Addon, DrillKind, ForkStrategy, SetPurpose, Size } from '@howdah/contract';

/** Everything an engine needs to know of a service. */
export type ServiceSpec = {
  id: string;
  /** The project that it belongs to; null: it is a spare. */
  projectId: string | null;
  addons: readonly Addon[];
  /** The major version of PostgreSQL; null: not recorded yet, that of its data. */
  major: number | null;
  /** Extensions beside those of the add-ons whose libraries its servers load at their start. */
  preload: readonly string[];
  /** A requested change of the extensions in its database; null: none. */
  extension: ExtensionChange | null;
  size: Size;
  /** The most that each of its servers may use of the disk, in gigabytes. */
  storageGb: number;
  /** Whether its size is a bound of its CPU too; absent: as its region has it. */
  cpuBound?: boolean;
  /** How many restarts were requested; its servers are started again for each. */
  restarts: number;
  /**
   * Whether it was provisioned before: users may have written to it. Without its data it is not
   * made again, unless it has a `recovery`.
   */
  provisioned: boolean;
  /** Whether it must run. */
  power: 'running' | 'paused';
  /** Where clients connect; reserved when the create was accepted, never changed. */
  endpoint: Endpoint;
  /**
   * The SCRAM verifier of the admin role's first password; set once, when the service is
   * provisioned. Null for a spare, which is kept running and provisioning until somebody claims it.
   */
  firstVerifier: string | null;
  /** The data that it begins with; null: an empty database. */
  origin: Origin | null;
  /** The restore of its data that was requested; null: none was. */
  recovery: Recovery | null;
  /** The move of its data into another major version that was requested; null: none was. */
  upgrade: Upgrade | null;
  /** Where its pooler listens, by default on the host of the endpoint; null: it has none. */
  pooler: { host?: string; port: number } | null;
  /** Replicas; null: it never had any, and one server listens on the endpoint's port itself. */
  ha: HighAvailability | null;
  /** The VPC that it is in; null: clients use its endpoint. */
  vpc: ServiceVpc | null;
  /**
   * The networks whose clients may connect, IPv4 and IPv6: those of its VPC and of its peers, or
   * those of its allow list; null: all.
   */
  allowedNetworks: readonly string[] | null;
  /** The service that a read replica set follows, and its nodes; null: it is no set. */
  set: ReplicaSet | null;
  /** The service's part in a move to another region; absent: it is in none. */
  move?: SpecMove;
  /** How it falls asleep; absent: it does not. */
  sleep?: Sleep;
};

/** A service that sleeps has no server: the first client has it started, and waits for it. */
export type Sleep = {
  /** For how long nobody has used it before it falls asleep. */
  readonly afterSeconds: number;
  /** Whether it was seen asleep. */
  readonly isAsleep: boolean;
  /** Whether nothing was asked of it that needs its server. */
  readonly mayStay: boolean;
};

/** The part of a service, or of its copy, in a move to another region. */
type SpecMove =
  /**
   * A copy in the other region follows it.
   *
   * `isAborted`: the move was given up, so that a service which it has stopped goes on. Nothing
   * else may start it.
   */
  | { readonly as: 'source'; readonly isAborted: boolean }
  /** The copy follows the service at that endpoint, and accepts no writes. */
  | { readonly as: 'copy'; readonly source: Endpoint };

/** An extension that the database must have, or must not have any more. */
export type ExtensionChange = { readonly name: string; readonly wanted: 'created' | 'dropped' };

/**
 * A read replica set: the service whose primary its nodes follow, their number, what reads it is
 * for.
 */
export type ReplicaSet = { parent: string; nodes: number; purpose: SetPurpose };

/** A service in a VPC: its listeners are there, each on the port that it has anyway. */
type ServiceVpc = {
  id: string;
  /**
   * The service's own address in the VPC, for all its listeners. null: the address of its endpoint,
   * with rules for the addresses of clients.
   */
  address: string | null;
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

/**
 * A gateway on the endpoint's port, and servers behind it: a primary, and standbys that follow it.
 * The engine chooses the servers, their ports and the primary.
 */
export type HighAvailability = {
  /** The number of standbys; 0: there were some, and the gateway stays. */
  replicas: number;
  /** The number of synchronous standbys: those that have every acknowledged write. */
  sync: number;
  /** Whether another primary is wanted. A failover satisfies it too. */
  switchover: boolean;
  /** A requested drill. */
  drill: DrillKind | null;
};

/**
 * The data that a fork begins with: that of another service now, in its last snapshot, or at a
 * point in time. `repository`: where the data of that point is fetched from; absent: it is in the
 * backups of the region.
 */
export type Origin = {
  parent: string;
  strategy: ForkStrategy;
  targetTime: string | null;
  repository?: string;
};

/** A restore of the data of a service from its backups. */
export type Recovery = {
  /** Data that it has made is kept; other data of the service is set aside. */
  id: string;
  /** The repository of the backups; null: those of this machine. */
  repository: string | null;
  /** The moment whose state comes back; null: the newest. */
  at: string | null;
  /**
   * The upgrade that has made the data that comes back; null: none has; absent: it was asked for in
   * an older release.
   */
  upgrade?: string | null;
  /** Data of another installation that a new service begins with; absent: it gets its own. */
  of?: ForeignData;
};

/** The data of a service in a repository of another installation, which is only read. */
export type ForeignData = {
  /** The service's stanza there. */
  stanza: string;
  /** The repository with its credentials, sealed by this installation, in base64. */
  sealed: string;
};

/**
 * Other data for a service, in the place of its own: its data in a newer major version of
 * PostgreSQL, the data from before that, or for a reset the data of its parent.
 */
export type Upgrade = {
  /** Data that it has made is kept; the data before it is set aside under this id. */
  id: string;
  /** The major version that the service is to have. */
  to: number;
  /** Whether the data that this upgrade has set aside comes back. */
  undo: boolean;
  /** The upgrade that had made the data before this one; null: none had. */
  before: string | null;
  /**
   * The data of its parent that a reset makes, in the same version; the data before it is removed.
   * Absent: it is no reset.
   */
  reset?: Origin;
};

export type Endpoint = { host: string; port: number };

// Where services listen: an engine chooses the endpoint of each, before its create is answered.

/** The unreserved ports of a region, for one reservation. */
export type PortLedger = {
  /**
   * The next port that nothing has reserved. The port that is used is reserved in the same
   * transaction; the region is locked until then.
   *
   * @throws NoPortLeft when all were offered already, or none is left
   */
  take: () => Promise<number>;
};

/** All ports of a region are reserved or in use; the message is for users. */
export class NoPortLeft extends Error {}

/** The servers of a service or read replica set, or its pooler. */
export type Listener = Readonly<{
  /** The id of the service or read replica set. */
  id: string;
  /** The host of the service whose pooler listens; null: its servers do. */
  poolerOf: string | null;
}>;

/** Where services listen. */
export interface Addresses {
  /**
   * Chooses an endpoint for a service, a read replica set or a spare, or for a pooler. It is
   * promised to a client and does not change afterwards. No other endpoint has its host and port.
   *
   * @throws NoPortLeft
   */
  reserve(ports: PortLedger, listener: Listener): Promise<Endpoint>;
  /** Whether a new service would be at the host of this endpoint too. */
  isCurrent(endpoint: Endpoint): boolean;
}

/** @returns the first port that can be used @throws NoPortLeft */
export async function takeUsablePort(
  ports: PortLedger,
  isUsable: (port: number) => Promise<boolean>,
): Promise<number> {
  for (;;) {
    const port = await ports.take();
    if (await isUsable(port)) return port;
  }
}

// The names of the steps of an upgrade, as users read them.

/** The steps that move the data of a service into another major version. */
export const UPGRADE_STEPS = ['copy data into the new version', 'exchange data'] as const;
/** The step of a reset before the data is exchanged. */
export const RESET_STEP = 'clone parent, beside the service';
/** The step of a trial. */
export const TRIAL_STEP = 'copy data into the new version, beside the service';
