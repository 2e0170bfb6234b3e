/** The desired state of a service with the servers that this engine has chosen for it. */
import type { ServerPort } from '../../records.ts';
import type { HighAvailability, ReplicaSet, ServiceSpec } from '../../spec.ts';

/** A primary and its standbys, each on a port of the loopback address. */
export type PlacedCluster = Pick<HighAvailability, 'sync' | 'drill'> & {
  readonly servers: readonly ServerPort[];
  /** The number of the recorded primary. */
  readonly primary: number;
  /**
   * A server that must no longer be the primary; null: the current one may stay. It is the primary
   * of the moment at which the request was read, so that a failover satisfies it as well.
   */
  readonly leave: number | null;
};

/** Whether data of a service comes from elsewhere: no client sees it before it has recovered. */
export const beginsWithData = ({ origin, recovery }: PlacedSpec): boolean =>
  origin !== null || recovery !== null;

/** The nodes of a read replica set, each on a port of the loopback address. */
export type PlacedSet = Omit<ReplicaSet, 'nodes'> & { readonly nodes: readonly ServerPort[] };

export type PlacedSpec = Omit<ServiceSpec, 'ha' | 'set'> & {
  readonly ha: PlacedCluster | null;
  readonly set: PlacedSet | null;
  /** The port of its server on the loopback address, behind its relay; absent: it has no relay. */
  readonly serverPort?: number;
};
