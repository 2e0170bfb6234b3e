/** One round of a cluster: what is desired, and the primary that is recorded. */
import { memberKey, type InstancePaths } from '../../host/layout.ts';
import type { Topology } from '../context.ts';
import type { Found } from '../executor.ts';
import type { Cluster } from './cluster.ts';
import type { PlacedCluster, PlacedSpec } from '../placed-spec.ts';

export type ClusterRound = {
  readonly topology: Topology;
  readonly cluster: Cluster;
  readonly spec: PlacedSpec;
  /** Its `primary` is the one that was recorded when the round began. */
  readonly ha: PlacedCluster;
};

/** @throws Error when the cluster has no such instance */
export function portOf(ha: PlacedCluster, n: number): number {
  const instance = ha.servers.find((candidate) => candidate.n === n);
  if (instance === undefined)
    throw new Error(`member ${n} is none of ${ha.servers.map((found) => found.n).join(', ')}`);
  return instance.port;
}

/** The name by which the monitor knows an instance of the cluster. */
export function keyOf({ spec }: Pick<ClusterRound, 'spec'>, n: number): string {
  return memberKey(spec.id, n);
}

export function pathsOf(
  { topology, spec }: Pick<ClusterRound, 'topology' | 'spec'>,
  n: number,
): InstancePaths {
  return topology.machine.layout.member(spec.id, n);
}

/** @throws Error when the round did not observe the instance */
export function foundAt(found: ReadonlyMap<number, Found>, n: number): Found {
  const instance = found.get(n);
  if (instance === undefined) throw new Error(`member ${n} was not observed`);
  return instance;
}
