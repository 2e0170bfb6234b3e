/** The desired state of a read replica set, which depends on the service that it follows. */
import { loadedLibraries } from '../../../domain/postgres/extensions-of.ts';
import type { ReplicaSet, ServiceSpec } from '../../spec.ts';
import { desiredOf, type Desired } from './desired.ts';
import { largestOf, limitsOf, type Limits } from './limits.ts';
import type { ClusterState } from './observed.ts';

/**
 * @param parent the Cluster of the service that it follows; null: there is none
 * @param before what was written of the set; null: nothing
 */
export function desiredOfSet(
  spec: ServiceSpec,
  { parent: id, nodes, purpose }: ReplicaSet,
  parent: ClusterState | null,
  before: Desired | null,
): Desired {
  const { reader: _reader, control: _control, ...desired } = desiredOf(spec);
  const followed = parent?.desired ?? null;
  return {
    ...desired,
    major: followed?.major ?? spec.major,
    replicas: nodes - 1,
    // Its data grows with that of the service, and no volume shrinks.
    storageGb: Math.max(spec.storageGb, followed?.storageGb ?? 0, before?.storageGb ?? 0),
    set: { parent: id, purpose, limits: limitsOfSet(spec, followed, before?.set?.limits ?? {}) },
  };
}

/** Never less than before: the service may have the larger ones for some time yet. */
function limitsOfSet(spec: ServiceSpec, followed: Desired | null, before: Limits): Limits {
  const preload = loadedLibraries(spec);
  const own = limitsOf({ ...spec, preload, size: spec.size === 'shared' ? null : spec.size });
  return largestOf([own, followed === null ? {} : limitsOf(followed), before]);
}
