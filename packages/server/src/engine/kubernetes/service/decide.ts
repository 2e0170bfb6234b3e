/**
 * The next step of a service on Kubernetes. Pure.
 *
 * The operator does most of the work by itself, so most steps have two halves: the Cluster is asked
 * for something, and then its end is waited for. Between them the Cluster has the name of the step
 * in an annotation, so that a control plane that ends in between goes on.
 */
import { isDeepStrictEqual } from 'node:util';
import type { ServiceSpec } from '../../spec.ts';
import { desiredOf, type Desired } from './desired.ts';
import type { ClusterState, Observed, ServerState } from './observed.ts';
import { STEPS } from './steps.ts';

/** The phase of a Cluster with nothing left to do, in the words of CloudNativePG. */
export const HEALTHY = 'Cluster in healthy state';

export type Step =
  | Readonly<{ kind: 'settled' }>
  /** `what`: the step that has not ended; `isObstacle`: it cannot end by itself. */
  | Readonly<{ kind: 'wait'; what: string; why: string; isObstacle: boolean; waitMs: number }>
  | Readonly<{ kind: 'refuse'; why: string }>
  /** Writes the objects of the service as desired; `awaits`: its end is waited for. */
  | Readonly<{ kind: 'write'; name: string; awaits: boolean; detail: string }>
  /** Begins to wait for what the operator does by itself. */
  | Readonly<{ kind: 'expect'; name: string }>
  /** The awaited step has ended. */
  | Readonly<{ kind: 'ended'; name: string; detail: string }>
  /** Asks PostgreSQL at the endpoint for an answer. */
  | Readonly<{ kind: 'connect'; name: string }>;

/** How soon a Cluster that changes is looked at again, beside the events of watches. */
const SOON_MS = 200;

/** @param isReachable whether PostgreSQL answered at the endpoint since the last change */
export function decide(spec: ServiceSpec, observed: Observed, isReachable: boolean): Step {
  const { cluster } = observed;
  const desired = desiredOf(spec);
  if (cluster === null) {
    if (!desired.running) return { kind: 'settled' };
    // A new Cluster under its name would be empty.
    if (spec.provisioned) return { kind: 'refuse', why: LOST };
    return { kind: 'write', name: STEPS.create, awaits: false, detail: `PostgreSQL ${spec.major}` };
  }
  if (cluster.leaving) return wait(STEPS.remove, 'the Cluster of the same name is being deleted');
  const otherMajor = otherMajorOf(cluster.desired, desired);
  // The operator would convert the data, with no way back.
  if (otherMajor !== null) return { kind: 'refuse', why: otherMajor };
  const change = changeOf(cluster.desired, desired);
  if (change !== null) return { kind: 'write', ...change };
  if (cluster.awaited !== null) return awaited(cluster, cluster.awaited, desired, observed);
  if (!desired.running) return { kind: 'settled' };
  if (!isUp(cluster, observed.servers, desired)) return { kind: 'expect', name: STEPS.start };
  return isReachable ? { kind: 'settled' } : { kind: 'connect', name: STEPS.connect };
}

const LOST =
  'its Cluster is gone, with its data: restore the Cluster and its volumes by a backup of the ' +
  'Kubernetes cluster, or delete the service';

const wait = (what: string, why: string, isObstacle = false): Step => ({
  kind: 'wait',
  what,
  why,
  isObstacle,
  waitMs: SOON_MS,
});

/** Why data cannot be started by the major version that is wanted; null: it can. */
function otherMajorOf(before: Desired | null, { major }: Desired): string | null {
  const found = before?.major ?? null;
  if (found === null || major === null || found === major) return null;
  return `its data is of PostgreSQL ${found}, and ${major} was asked for: services on Kubernetes stay in their major version`;
}

type Change = Readonly<{ name: string; awaits: boolean; detail: string }>;

/** The step that brings a Cluster to what is desired; null: it was asked for that already. */
export function changeOf(before: Desired | null, desired: Desired): Change | null {
  if (before === null)
    return {
      name: STEPS.write,
      awaits: true,
      detail: 'the annotation with its desired state was changed',
    };
  if (isDeepStrictEqual(before, desired)) return null;
  if (!desired.running)
    // Whatever else is different is written when it starts.
    return before.running ? { name: STEPS.stop, awaits: true, detail: 'paused' } : null;
  if (!before.running) return { name: STEPS.start, awaits: true, detail: 'with its volumes' };
  const restart = restartWhy(before, desired);
  if (restart !== null) return { name: STEPS.restart, awaits: true, detail: restart };
  if (before.replicas !== desired.replicas || before.sync !== desired.sync)
    return {
      name: desired.replicas < before.replicas ? STEPS.removeStandby : STEPS.addStandby,
      awaits: true,
      detail: `${desired.replicas} standbys, ${desired.sync} of them synchronous`,
    };
  if (before.storageGb !== desired.storageGb)
    return { name: STEPS.growVolume, awaits: false, detail: `${desired.storageGb} GB` };
  return { name: STEPS.write, awaits: true, detail: 'without a restart' };
}

function restartWhy(before: Desired, desired: Desired): string | null {
  if (!isDeepStrictEqual(before.size, desired.size)) return 'for its new size';
  if (!isDeepStrictEqual(before.preload, desired.preload)) return 'to load other libraries';
  if (before.restarts !== desired.restarts) return 'as asked';
  return null;
}

/** Whether what the operator was asked for is done. */
function awaited(
  cluster: ClusterState,
  name: string,
  desired: Desired,
  { servers, obstacle }: Observed,
): Step {
  const isDone = desired.running ? isUp(cluster, servers, desired) : isDown(cluster, servers);
  if (isDone) return { kind: 'ended', name, detail: detailOf(cluster, desired) };
  return wait(name, obstacle ?? phaseOf(cluster), obstacle !== null);
}

/**
 * Whether all servers run as desired. `Ready` and the phase are not enough: a Cluster that is
 * hibernated, or resumes, is healthy and ready in both.
 */
function isUp(cluster: ClusterState, servers: readonly ServerState[], desired: Desired): boolean {
  const wanted = 1 + desired.replicas;
  const staying = servers.filter(({ leaving }) => !leaving);
  return (
    cluster.phase === HEALTHY &&
    !cluster.hibernated &&
    cluster.ready === wanted &&
    staying.length === wanted &&
    staying.every((server) => server.ready && isCurrent(server, desired))
  );
}

/** A server that still has its size of before is about to be replaced. */
function isCurrent({ limits, restarts }: ServerState, desired: Desired): boolean {
  const { size } = desired;
  if (restarts !== null && restarts !== String(desired.restarts)) return false;
  return size === null || isAmount(limits['memory'], size.memoryGbs);
}

/** Kubernetes writes a quantity in the shortest form: 2Gi stays 2Gi, 0.5Gi becomes 512Mi. */
function isAmount(memory: string | undefined, gigabytes: number): boolean {
  const [, number, unit] = /^(\d+)(Gi|Mi)$/.exec(memory ?? '') ?? [];
  return Number(number) * (unit === 'Mi' ? 1 / 1024 : 1) === gigabytes;
}

function isDown(cluster: ClusterState, servers: readonly ServerState[]): boolean {
  return cluster.hibernated && servers.length === 0;
}

function detailOf({ primary }: ClusterState, { running, replicas }: Desired): string {
  if (!running) return 'all servers are stopped, the volumes are kept';
  return replicas === 0 ? `server ${primary}` : `server ${primary} and ${replicas} standbys`;
}

/** The state in the words of CloudNativePG, for users. */
function phaseOf({ phase, phaseReason }: ClusterState): string {
  const reason = phaseReason === null ? '' : ` (${phaseReason})`;
  return `CloudNativePG: ${phase ?? 'no answer yet'}${reason}`;
}
