/**
 * The state of a service in its cluster, as far as decisions need it. All of it is input. Facts are
 * those of docs/cloudnativepg.md.
 */
import { Type, type Static } from 'typebox';
import { DESIRED, FENCED, FENCED_ALL, HIBERNATION, RESTARTED } from './manifest.ts';
import { AWAITED, instanceOf, LABELS } from '../names.ts';
import { readDesired, type Desired } from './desired-state.ts';
import { foreignFields, MANAGED_FIELDS, type ForeignField } from './foreign-fields.ts';
import { METADATA, TEXTS } from '../api/kinds.ts';
import type { PoolerState } from '../pooler/state.ts';

/** The annotation of a Cluster that users could write to. */
export const PROVISIONED = 'howdah.io/provisioned';

/** The annotation of a Cluster that a move has stopped: only the end of that starts it again. */
export const STOPPED_BY_MOVE = 'howdah.io/stopped-by-move';

export const CLUSTER_OBJECT = Type.Object({
  metadata: Type.Intersect([METADATA, Type.Object({ managedFields: MANAGED_FIELDS })]),
  spec: Type.Object({
    instances: Type.Number(),
    imageName: Type.Optional(Type.String()),
    walStorage: Type.Optional(Type.Object({ storageClass: Type.Optional(Type.String()) })),
    managed: Type.Optional(
      Type.Object({
        services: Type.Optional(
          Type.Object({
            additional: Type.Optional(
              Type.Array(
                Type.Object({
                  serviceTemplate: Type.Object({
                    spec: Type.Object({
                      ports: Type.Optional(
                        Type.Array(Type.Object({ nodePort: Type.Optional(Type.Number()) })),
                      ),
                    }),
                  }),
                }),
              ),
            ),
          }),
        ),
      }),
    ),
  }),
  status: Type.Optional(
    Type.Object({
      phase: Type.Optional(Type.String()),
      phaseReason: Type.Optional(Type.String()),
      readyInstances: Type.Optional(Type.Number()),
      currentPrimary: Type.Optional(Type.String()),
      targetPrimary: Type.Optional(Type.String()),
      conditions: Type.Optional(
        Type.Array(
          Type.Object({
            type: Type.String(),
            status: Type.String(),
            reason: Type.Optional(Type.String()),
          }),
        ),
      ),
    }),
  ),
});
export type ClusterObject = Static<typeof CLUSTER_OBJECT>;

const WAITING = Type.Object({
  reason: Type.Optional(Type.String()),
  message: Type.Optional(Type.String()),
});
const TERMINATED = Type.Optional(Type.Object({ exitCode: Type.Number() }));
const CONTAINERS = Type.Array(
  Type.Object({
    name: Type.String(),
    state: Type.Optional(Type.Object({ waiting: Type.Optional(WAITING), terminated: TERMINATED })),
    /** While it waits to be started again. */
    lastState: Type.Optional(Type.Object({ terminated: TERMINATED })),
  }),
);
type Container = Static<typeof CONTAINERS>[number];
export const POD_OBJECT = Type.Object({
  metadata: METADATA,
  spec: Type.Object({
    containers: Type.Array(
      Type.Object({
        name: Type.String(),
        resources: Type.Optional(
          Type.Object({ limits: Type.Optional(TEXTS), requests: Type.Optional(TEXTS) }),
        ),
      }),
    ),
  }),
  status: Type.Optional(
    Type.Object({
      phase: Type.Optional(Type.String()),
      podIP: Type.Optional(Type.String()),
      message: Type.Optional(Type.String()),
      conditions: Type.Optional(
        Type.Array(
          Type.Object({
            type: Type.String(),
            status: Type.String(),
            message: Type.Optional(Type.String()),
          }),
        ),
      ),
      /** The sidecar of the Barman Cloud plugin is one. */
      initContainerStatuses: Type.Optional(CONTAINERS),
      containerStatuses: Type.Optional(CONTAINERS),
    }),
  ),
});
export type PodObject = Static<typeof POD_OBJECT>;

export const SNAPSHOT_OBJECT = Type.Object({
  metadata: METADATA,
  status: Type.Optional(
    Type.Object({
      readyToUse: Type.Optional(Type.Boolean()),
      error: Type.Optional(Type.Object({ message: Type.Optional(Type.String()) })),
    }),
  ),
});
export type SnapshotObject = Static<typeof SNAPSHOT_OBJECT>;

/** The container of PostgreSQL in its pod. */
const CONTAINER = 'postgres';

export type Observed = Readonly<{
  /** null: there is none. */
  cluster: ClusterState | null;
  /** The pods of members, by their numbers. */
  servers: readonly ServerState[];
  /** Why one of its pods does not start; null: no reason is known. */
  obstacle: string | null;
  /** The Cluster of the service that it is a fork or a set of; null: there is none. */
  parent: ClusterState | null;
  /** The snapshot that a fork is made of; null: there is none, or the fork has its Cluster. */
  snapshot: SnapshotState | null;
  /** The backup of its running parent that a fork is made of; null: there is none. */
  backup: SnapshotState | null;
  /** Why the operator cannot take a snapshot of the parent while that runs; null: it can. */
  whyNoBackup: string | null;
  /** The newest snapshot that was taken of the parent as a backup; null: there is none. */
  newestSnapshot: string | null;
  /** The service's connection pooler; null: there is none. */
  pooler: PoolerState | null;
}>;

export type SnapshotState = Readonly<{
  ready: boolean;
  /** Whether the step that takes it has not ended. */
  isAwaited: boolean;
  /** Why it is not taken, in the words of the cluster; null: no reason is known. */
  problem: string | null;
}>;

export type ClusterState = Readonly<{
  name: string;
  namespace: string;
  /** The object itself: another one of the name has another. */
  uid: string;
  /** The version of the object: a change that must not overwrite another one names it. */
  version: string;
  /** By its label; null: somebody has removed it. */
  projectId: string | null;
  /** The port of its endpoint; null: unknown. */
  nodePort: number | null;
  /** Whether its deletion was asked for. */
  leaving: boolean;
  /** The desired state when it was last written; null: unknown. */
  desired: Desired | null;
  /** Whether users could write to it. */
  provisioned: boolean;
  /** The step whose end is waited for; null: none. */
  awaited: string | null;
  /** In the words of CloudNativePG; null: it has said nothing yet. */
  phase: string | null;
  phaseReason: string | null;
  /** The image of PostgreSQL; null: the default of the operator. */
  image: string | null;
  /** The storage class of its volumes for WAL, which it keeps; null: WAL is with the data. */
  walClass: string | null;
  instances: number;
  ready: number;
  /** Whether all servers were stopped as asked. */
  hibernated: boolean;
  /** Whether it must hibernate, and does not since a server is not healthy (fact 6). */
  waitsForHealthy: boolean;
  /** Whether PostgreSQL is stopped in all its pods, by an annotation (fact 3). */
  fenced: boolean;
  /** Whether a move has stopped it, so that all that it has is in the copy. */
  stoppedByMove: boolean;
  /** null: it never had one. */
  primary: number | null;
  /** Whether another primary is wanted than the one that it has (facts 16 and 17). */
  isChangingPrimary: boolean;
  /** The fields that others than Howdah have set. */
  foreign: readonly ForeignField[];
}>;

export type ServerState = Readonly<{
  n: number;
  /** The pod itself: another one of the name has another. */
  uid: string;
  ready: boolean;
  leaving: boolean;
  /** The limits of its container, as the pod has them. */
  limits: Readonly<Record<string, string>>;
  /** The mark of the restart that it was started after. */
  restarts: string | null;
  /** The address of its pod; null: it has none yet. */
  address: string | null;
  /** Whether it ended without an error, and Kubernetes waits before it starts it again. */
  isHeldBack: boolean;
}>;

export function clusterState({ metadata, spec, status }: ClusterObject): ClusterState {
  const annotations = metadata.annotations ?? {};
  const hibernation = (status?.conditions ?? []).find(({ type }) => type === HIBERNATION);
  const { currentPrimary, targetPrimary } = status ?? {};
  return {
    name: metadata.name,
    namespace: metadata.namespace,
    uid: metadata.uid,
    version: metadata.resourceVersion,
    projectId: metadata.labels?.[LABELS.project] ?? null,
    nodePort:
      spec.managed?.services?.additional?.[0]?.serviceTemplate.spec.ports?.[0]?.nodePort ?? null,
    leaving: metadata.deletionTimestamp !== undefined,
    desired: readDesired(annotations[DESIRED]),
    provisioned: annotations[PROVISIONED] !== undefined,
    awaited: annotations[AWAITED] ?? null,
    phase: status?.phase ?? null,
    phaseReason: status?.phaseReason ?? null,
    image: spec.imageName ?? null,
    walClass: spec.walStorage?.storageClass ?? null,
    instances: spec.instances,
    ready: status?.readyInstances ?? 0,
    hibernated: hibernation?.status === 'True',
    waitsForHealthy: hibernation?.status === 'False' && hibernation.reason === 'WaitingForHealthy',
    fenced: annotations[FENCED] === FENCED_ALL,
    stoppedByMove: annotations[STOPPED_BY_MOVE] !== undefined,
    primary: currentPrimary === undefined ? null : instanceOf(currentPrimary),
    isChangingPrimary:
      currentPrimary !== undefined && (targetPrimary ?? currentPrimary) !== currentPrimary,
    foreign: foreignFields(metadata.managedFields, spec),
  };
}

/** @returns null: the pod is that of a job, not of a server */
export function serverState({ metadata, spec, status }: PodObject): ServerState | null {
  const n = instanceOf(metadata.name);
  const container = spec.containers.find(({ name }) => name === CONTAINER);
  if (n === null || container === undefined) return null;
  const conditions = status?.conditions ?? [];
  return {
    n,
    uid: metadata.uid,
    ready: conditions.some(({ type, status: is }) => type === 'Ready' && is === 'True'),
    leaving: metadata.deletionTimestamp !== undefined,
    limits: container.resources?.limits ?? {},
    restarts: metadata.annotations?.[RESTARTED] ?? null,
    address: status?.podIP ?? null,
    isHeldBack: (status?.containerStatuses ?? []).some(isHeldBack),
  };
}

const isHeldBack = ({ name, state, lastState }: Container): boolean =>
  name === CONTAINER &&
  state?.waiting?.reason === 'CrashLoopBackOff' &&
  lastState?.terminated?.exitCode === 0;

/** Longest text of a cluster that users are shown. */
const MAX_LENGTH = 300;

export function snapshotState({ metadata, status }: SnapshotObject): SnapshotState {
  return {
    ready: status?.readyToUse === true,
    isAwaited: metadata.annotations?.[AWAITED] !== undefined,
    problem: status?.error?.message?.slice(0, MAX_LENGTH) ?? null,
  };
}

/**
 * The reason why a service does not start. A new one begins with the pod of a job, which runs
 * initdb, and CloudNativePG names no reason (docs/cloudnativepg.md, fact 6).
 */
export function obstacleIn(pods: readonly PodObject[]): string | null {
  for (const { metadata, status } of pods) {
    const why = obstacleOf(status);
    if (why !== null) return `pod ${metadata.name}: ${why}`;
  }
  return failureIn(pods);
}

/** Why the pods have failed, if no other one was made since: a job makes several, one by one. */
function failureIn(pods: readonly PodObject[]): string | null {
  const [failed] = pods;
  if (failed === undefined || pods.some(({ status }) => status?.phase !== 'Failed')) return null;
  const { name, namespace } = failed.metadata;
  const message = failed.status?.message;
  const why =
    message === undefined
      ? `kubectl logs --namespace ${namespace} ${name}`
      : message.slice(0, MAX_LENGTH);
  return `pod ${name}: failed, ${pods.length} times in a row: ${why}`;
}

/** The scheduler may see the pod of a new standby before its volume is asked for. */
const NO_CLAIM_YET = /persistentvolumeclaim "[^"]*" not found/;

/** The status of a server that has no room for WAL: docs/cloudnativepg.md, fact 42. */
const OUT_OF_SPACE = 4;
export const VOLUME_FULL =
  'its volume is full: resize it to more storage_gb (howdah service resize NAME --storage-gb …)';

function isOutOfSpace({ name, state, lastState }: Container): boolean {
  const ended = state?.waiting === undefined ? state?.terminated : lastState?.terminated;
  return name === CONTAINER && ended?.exitCode === OUT_OF_SPACE;
}

/** The reason why a pod does not start: its image cannot be pulled, or no node has room for it. */
function obstacleOf(status: PodObject['status']): string | null {
  const unscheduled = (status?.conditions ?? []).find(
    ({ type, status: is, message }) =>
      type === 'PodScheduled' && is === 'False' && !NO_CLAIM_YET.test(message ?? ''),
  );
  if (unscheduled !== undefined)
    return `no node can run it: ${(unscheduled.message ?? 'unknown').slice(0, MAX_LENGTH)}`;
  const { initContainerStatuses = [], containerStatuses = [] } = status ?? {};
  if (containerStatuses.some(isOutOfSpace)) return VOLUME_FULL;
  for (const { state } of [...initContainerStatuses, ...containerStatuses]) {
    const reason = state?.waiting?.reason;
    if (reason === undefined || reason === 'ContainerCreating' || reason === 'PodInitializing')
      continue;
    const message = state?.waiting?.message;
    return `${reason}${message === undefined ? '' : `: ${message.slice(0, MAX_LENGTH)}`}`;
  }
  return null;
}
