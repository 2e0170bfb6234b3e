/** A Cluster as a round of the operator double reads it, and the status that it ends with. */
import { isDeepStrictEqual } from 'node:util';
import type { Api } from './api.ts';
import {
  clusterPath,
  type Claim,
  type Cluster,
  type Condition,
  type Job,
  type Pod,
} from './cluster.ts';

export const HIBERNATION = 'cnpg.io/hibernation';

/** The phases of CloudNativePG. */
export const PHASES = {
  healthy: 'Cluster in healthy state',
  initdb: 'Setting up primary',
  joining: 'Creating a new replica',
  waiting: 'Waiting for the instances to become active',
  restarting: 'Primary instance is being restarted without a switchover',
  upgrading: 'Upgrading cluster',
  switchover: 'Switchover in progress',
  failover: 'Failing over',
  outOfSpace: 'Not enough disk space',
} as const;

/** A Cluster with its objects, as they were listed. */
export type Seen = Readonly<{
  cluster: Cluster;
  /** The volumes of its servers, in the order of their numbers. */
  claims: readonly Claim[];
  /** The volumes for WAL of its servers, if they have any. */
  walClaims: readonly Claim[];
  job: Job | null;
  /** The pods of its servers, in the same order. */
  servers: readonly Pod[];
  /** The version of what is in the volumes of its servers. */
  volumes: string;
  /** The versions of the secrets of its managed roles, by their names. */
  roleSecrets: ReadonlyMap<string, string>;
}>;

export type Tools = Readonly<{
  api: Api;
  /** The image of PostgreSQL, for Clusters without one. */
  image: string;
  /** Runs a script of the shell in the container of a server. @returns its output */
  exec: (pod: Pod, script: string) => Promise<string>;
}>;

/** The status that a round ends with. */
export type Status = Readonly<{
  phase: string;
  ready: boolean;
  readyInstances: number | null;
  /** The condition of hibernation; null: there is none. */
  hibernation: Omit<Condition, 'type'> | null;
  /** Absent: as before. */
  currentPrimary?: string;
  targetPrimary?: string;
}>;

export const HEALTHY: Status = {
  phase: PHASES.healthy,
  ready: true,
  readyInstances: null,
  hibernation: null,
};
export const changing = (phase: string): Status => ({ ...HEALTHY, phase, ready: false });

/**
 * Writes what has changed. A primary that somebody asks for meanwhile stays asked for: only a
 * change of it is written.
 */
export async function writeStatus(
  api: Api,
  cluster: Cluster,
  { phase, ready, readyInstances, hibernation, ...primaries }: Status,
): Promise<void> {
  const conditions: Condition[] = [
    // From the first moment on: docs/cloudnativepg.md, facts 1 and 5.
    { type: 'Initialized', status: 'True', reason: 'Seen' },
    { type: 'ContinuousArchiving', status: 'True', reason: 'Seen' },
    { type: 'Ready', status: ready ? 'True' : 'False', reason: 'Seen' },
    ...(hibernation === null ? [] : [{ type: HIBERNATION, ...hibernation }]),
  ];
  const before = cluster.status;
  if (
    before?.phase === phase &&
    (before.readyInstances ?? null) === readyInstances &&
    isDeepStrictEqual(before.conditions, conditions) &&
    (primaries.currentPrimary ?? before.currentPrimary) === before.currentPrimary &&
    (primaries.targetPrimary ?? before.targetPrimary) === before.targetPrimary
  )
    return;
  const instances = cluster.spec.instances;
  // Not over a status that has changed since it was read: the next round sees it.
  await api.mergeVersion(`${clusterPath(cluster)}/status`, cluster.metadata.resourceVersion, {
    status: { phase, readyInstances, conditions, instances, ...primaries },
  });
}
