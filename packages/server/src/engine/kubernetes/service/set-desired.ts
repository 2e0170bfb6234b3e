/** The desired state of a read replica set, which depends on the service that it follows. */
import { serverSettings } from '../../../domain/postgres/settings.ts';
import type { ReplicaSet, ServiceSpec } from '../../spec.ts';
import { desiredOf, type Desired } from './desired.ts';
import type { ClusterState } from './observed.ts';

/**
 * The settings that a standby needs at least as large as its primary has them. Otherwise it stops
 * to follow. https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-ADMIN
 */
const LIMITS = ['max_connections', 'max_worker_processes', 'max_wal_senders'] as const;

type Limits = Readonly<Record<string, number>>;

/**
 * @param parent the Cluster of the service that it follows; null: there is none
 * @param before what was written of the set; null: nothing
 */
export function desiredOfSet(
  spec: ServiceSpec,
  { parent: id, nodes }: ReplicaSet,
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
    set: { parent: id, limits: limitsOf(spec, followed, before?.set?.limits ?? {}) },
  };
}

/** Never less than before: the service may have the larger ones for some time yet. */
function limitsOf(spec: ServiceSpec, followed: Desired | null, before: Limits): Limits {
  const own = settingsOf({ ...spec, size: spec.size === 'shared' ? null : spec.size });
  const needed = followed === null ? {} : settingsOf(followed);
  return Object.fromEntries(
    LIMITS.map((name) => [
      name,
      Math.max(...[own, needed, before].map((limits: Limits) => limits[name] ?? 0)),
    ]),
  );
}

function settingsOf({
  size,
  major,
  preload,
  storageGb,
}: Pick<Desired, 'size' | 'major' | 'storageGb'> & { preload: readonly string[] }): Limits {
  const settings = serverSettings({
    size: size ?? 'shared',
    major: major ?? 0,
    extensions: [...preload],
    storageGb,
  });
  return Object.fromEntries(LIMITS.map((name) => [name, Number(settings[name])]));
}
