/**
 * The desired state of a service, as an annotation of its Cluster has it. A spec is compared with
 * this and not with the fields of the Cluster: the operator and its webhook complete those.
 */
import { createHash } from 'node:crypto';
import { PlacementSchema, SET_PURPOSES, StringEnum, type Placement } from '@howdah/contract';
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import { loadedLibraries } from '../../../domain/postgres/extension-rules.ts';
import type { ServiceSpec } from '../../spec.ts';

const DESIRED = Type.Object({
  major: Type.Union([Type.Null(), Type.Number()]),
  running: Type.Boolean(),
  /** Null: a shared size. */
  size: Type.Union([
    Type.Null(),
    Type.Object({ cpuMillis: Type.Number(), memoryGbs: Type.Number() }),
  ]),
  /**
   * Whether the CPU of its size is a limit too; absent: it is not. Before it is completed by
   * `boundAs`, absent: as its region has it.
   */
  bound: Type.Optional(Type.Boolean()),
  storageGb: Type.Number(),
  replicas: Type.Number(),
  sync: Type.Number(),
  restarts: Type.Number(),
  preload: Type.Array(Type.String()),
  /** Whether it has the role of statements; absent: an earlier release has written it. */
  reader: Type.Optional(Type.Literal(true)),
  /** Whether it has the role that ends sessions; absent: an earlier release has written it. */
  control: Type.Optional(Type.Literal(true)),
  /** The networks whose clients may connect; absent: all. */
  networks: Type.Optional(Type.Array(Type.String())),
  /** Whether its pooler may connect beside those networks; absent: it has none. */
  pooled: Type.Optional(Type.Literal(true)),
  /** The service whose data a fork copies; absent: it has its data. */
  parent: Type.Optional(Type.String()),
  /** The snapshot that its volume is made of; absent: `parent` must run until it is copied. */
  snapshot: Type.Optional(Type.String()),
  /** The class for snapshots of its volumes; absent: none are taken. */
  snapshotClass: Type.Optional(Type.String()),
  /** The service in another region that a copy follows until it takes its place; absent: none. */
  source: Type.Optional(Type.Object({ host: Type.String(), port: Type.Number() })),
  /** The service that a read replica set follows. Its nodes are one and its `replicas`. */
  set: Type.Optional(
    Type.Object({
      parent: Type.String(),
      /** Absent: an earlier release has written it. */
      purpose: Type.Optional(StringEnum(SET_PURPOSES)),
      /** The least of some settings that its nodes need to follow: see `desiredOfSet`. */
      limits: Type.Record(Type.String(), Type.Number()),
    }),
  ),
  /** The moment whose data a fork gets, of its parent's archive; absent: it has its data. */
  targetTime: Type.Optional(Type.String()),
  /** Whether its WAL is archived in the object store of the region; absent: it is not. */
  archives: Type.Optional(Type.Literal(true)),
  /** Whether it goes on in the archive that it was restored from; absent: it has its own. */
  recovered: Type.Optional(Type.Literal(true)),
  /** Where its pods run; absent: anywhere. */
  placement: Type.Optional(PlacementSchema),
  /** Whether its images are pulled by the credentials of the region; absent: without any. */
  pulls: Type.Optional(Type.Literal(true)),
  /** The storage class of its volumes for WAL; absent: WAL is with the data. */
  walClass: Type.Optional(Type.String()),
});

export type Desired = Static<typeof DESIRED>;

/** Where a fork has its data from. */
export type Source = Readonly<{
  parent: string;
  /** The snapshot that its volume is made of; null: the parent is copied. */
  snapshot: string | null;
  /** The moment in its archive, or `LATEST`; null: the parent, or the snapshot, as it is. */
  targetTime: string | null;
}>;

/**
 * @param source of a fork that does not have its data; null: it has, or it is none
 * @param snapshotClass for snapshots of its volumes; null: there is none
 * @param archives whether its WAL is archived
 */
export function desiredOf(
  spec: ServiceSpec,
  source: Source | null = null,
  snapshotClass: string | null = null,
  archives = false,
): Desired {
  const { size, ha } = spec;
  return {
    major: spec.major,
    running: spec.power === 'running',
    size: size === 'shared' ? null : size,
    ...(size === 'shared' || spec.cpuBound === undefined ? {} : { bound: spec.cpuBound }),
    storageGb: spec.storageGb,
    replicas: ha?.replicas ?? 0,
    sync: ha?.sync ?? 0,
    restarts: spec.restarts,
    preload: loadedLibraries(spec),
    reader: true,
    ...(source === null ? {} : { parent: source.parent }),
    control: true,
    ...(spec.allowedNetworks === null ? {} : { networks: [...spec.allowedNetworks] }),
    ...(spec.allowedNetworks === null || spec.pooler === null ? {} : { pooled: true }),
    ...(source === null || source.snapshot === null ? {} : { snapshot: source.snapshot }),
    ...(snapshotClass === null ? {} : { snapshotClass }),
    ...(source === null || source.targetTime === null ? {} : { targetTime: source.targetTime }),
    ...(archives ? { archives } : {}),
    ...(spec.move?.as === 'copy' ? { source: spec.move.source } : {}),
  };
}

/** Completes whether the CPU is a limit: no bound stays absent where it was never written. */
export function boundAs(desired: Desired, before: Desired | null, bound: boolean): Desired {
  const { bound: _, ...rest } = desired;
  if (before?.bound !== undefined || bound) return { ...rest, bound };
  return rest;
}

/** The nodes, credentials, volumes and bounds of a Cluster beside its spec. */
export type Placed = Readonly<{
  boundsCpu: boolean;
  placement: Placement;
  pulls: boolean;
  walClass: string | null;
}>;

export const placedAt = (
  desired: Desired,
  { placement, pulls, walClass }: Omit<Placed, 'boundsCpu'>,
): Desired => ({
  ...desired,
  ...(Object.keys(placement).length === 0 ? {} : { placement }),
  ...(pulls ? { pulls } : {}),
  ...(walClass === null ? {} : { walClass }),
});

/** A server that was started with another bound is not current: its limit may be another's. */
const markOfBound = ({ bound }: Desired): string =>
  bound === undefined ? '' : bound ? ', bound' : ', not bound';

/**
 * Another value restarts all servers. Those of a set are restarted for other networks too, which
 * ends the sessions of clients that may no longer connect: nobody reaches a certain node of it.
 */
export function restartMarkOf(desired: Desired): string {
  const { restarts, size, networks, set, targetTime } = desired;
  const bound = markOfBound(desired);
  if (set === undefined)
    // A recovery needs larger limits than its server: see `parameters.ts`.
    return `${restarts}${targetTime === undefined ? '' : ', recovered'}${bound}`;
  const limits = Object.entries(set.limits).toSorted(([a], [b]) => a.localeCompare(b));
  const cause = JSON.stringify([restarts, size, networks ?? null, limits]);
  return createHash('sha256').update(`${cause}${bound}`).digest('hex').slice(0, 16);
}

export const writeDesired = (desired: Desired): string => JSON.stringify(desired);

/** @returns null: somebody has changed the annotation, so that everything is written again */
export function readDesired(text: string | undefined): Desired | null {
  if (text === undefined) return null;
  try {
    const parsed: unknown = JSON.parse(text);
    return Value.Check(DESIRED, parsed) ? parsed : null;
  } catch {
    return null;
  }
}
