/** The state of services, as users read it. */
import type { Member, ReplicaState, Warning } from '@howdah/contract';
import type { Observing } from '../engine.ts';
import type { Away } from './region/answers.ts';
import type { Archiver } from './backup/archiver.ts';
import { problemOf, whyNotArchived } from './backup/backups.ts';
import { podTag } from './logs/lines.ts';
import { readLog } from './logs/page.ts';
import { podIn } from './names.ts';
import type { Region } from './region/region.ts';
import type { BackupState } from './backup/state.ts';
import type { ClusterState, ServerState } from './cluster/state.ts';
import { fewOf } from './cluster/foreign-fields.ts';
import { usageOfSet, usageOf } from './usage.ts';

export function createObserving(region: Region, archiver: Pick<Archiver, 'problem'>): Observing {
  const { kube, cache, keptLogs, readLagLimit } = region;
  const found = (id: string): Found | null => {
    const cluster = cache.cluster(id);
    return cluster === null ? null : { cluster, servers: cache.servers(id) };
  };
  return {
    readLagLimit,
    warnings: async (id) => [
      ...awayWarnings(region.answers.away()),
      ...warningsOf(found(id)),
      ...snapshotWarnings(cache.backups(id)),
      ...archiveWarnings(whyNotArchived(region, archiver, id)),
      ...changeWarnings(id, region.changedByOthers.get(id) ?? []),
    ],
    logs: async (id, node, query, signal) => {
      signal.throwIfAborted();
      const cluster = cache.cluster(id);
      if (cluster === null && node !== null) return { entries: [], cursor: null };
      const server =
        node === null || cluster === null
          ? (cluster?.primary ?? (await region.records.read(id))?.primary ?? null)
          : node - firstOf(cluster);
      if (server === null) return { entries: [], cursor: null };
      const found = cache.servers(id).find(({ n }) => n === server);
      const pod =
        found === undefined || cluster === null
          ? null
          : {
              namespace: cluster.namespace,
              name: podIn(cluster.name, server),
              tag: podTag(found.uid),
            };
      return readLog({ kube, kept: keptLogs }, { id, server, pod }, query, signal);
    },
    usage: (id) => {
      const cluster = cache.cluster(id);
      return cluster?.desired?.set === undefined
        ? usageOf(region, id)
        : usageOfSet(region, id, cluster);
    },
    replicas: async (id) => {
      const known = found(id);
      return nodesOf(known) ?? replicasOf(known);
    },
    servers: async (id) => instancesOf(found(id)),
    // CloudNativePG can synchronise logical slots; a Cluster of ours does not ask for it.
    synchronisedSlots: () => Promise.resolve(null),
  };
}

type Found = Readonly<{ cluster: ClusterState; servers: readonly ServerState[] }>;

/** The number of the first server: members of services are counted from 0, nodes of sets from 1. */
const firstOf = ({ desired }: ClusterState): number => (desired?.set === undefined ? 0 : 1);

/** The nodes of a read replica set; null: it is a service. */
export function nodesOf(found: Found | null): ReplicaState[] | null {
  const desired = found?.cluster.desired ?? null;
  if (found === null || desired?.set === undefined) return null;
  const { cluster } = found;
  // Kubernetes numbers them, and does not use a number again.
  const numbers = numbersOf(found);
  for (let n = 0; numbers.length < 1 + desired.replicas; n += 1)
    if (!numbers.includes(n)) numbers.push(n);
  return numbers
    .toSorted((a, b) => a - b)
    .map((n) => {
      const serving = isRunning(found, n);
      return {
        node: n + firstOf(cluster),
        serving,
        lag_bytes: null,
        lag_seconds: null,
        detail: serving ? 'follows the service, within the limit of bytes' : NOT_SERVING,
      };
    });
}

const NOT_SERVING = 'does not run, or is too far behind: clients do not reach it';

/** Whether PostgreSQL runs in a pod, as far as the pod says. */
const isRunning = ({ cluster, servers }: Found, node: number): boolean =>
  !cluster.fenced && servers.some(({ n, ready, leaving }) => n === node && ready && !leaving);

/** The members of a service: those that have a pod that stays, and its primary. */
function numbersOf({ cluster: { primary }, servers }: Found): number[] {
  const numbers = new Set(servers.filter(({ leaving }) => !leaving).map(({ n }) => n));
  if (primary !== null) numbers.add(primary);
  return [...numbers].toSorted((a, b) => a - b);
}

/**
 * The control plane has no session in a service, so that a standby which runs is not known to
 * stream, and has no lag.
 */
export function instancesOf(found: Found | null): Member[] {
  if (found === null) return [];
  const { cluster } = found;
  const { replicas = 0, sync = 0 } = cluster.desired ?? {};
  return numbersOf(found).map((node) => {
    const isPrimary = node === cluster.primary && cluster.desired?.set === undefined;
    return {
      node: node + firstOf(cluster),
      role: isPrimary ? 'primary' : 'standby',
      state: isRunning(found, node) ? 'running' : 'stopped',
      // If fewer are, no one knows which of them has a write.
      synchronous: !isPrimary && sync > 0 && sync === replicas,
      lag_bytes: null,
      lag_seconds: null,
    };
  });
}

export function replicasOf(found: Found | null): ReplicaState[] {
  if (found === null) return [];
  return numbersOf(found)
    .filter((node) => node !== found.cluster.primary)
    .map((node) => ({
      node,
      serving: false,
      lag_bytes: null,
      lag_seconds: null,
      detail: isRunning(found, node) ? 'runs; its lag is not known' : 'does not run',
    }));
}

function snapshotWarnings(backups: readonly BackupState[]): Warning[] {
  const message = problemOf(backups, Date.now());
  return message === null ? [] : [{ code: 'SNAPSHOT', message }];
}

const archiveWarnings = (message: string | null): Warning[] =>
  message === null ? [] : [{ code: 'ARCHIVE', message }];

/** All else that is shown of a service is as it was then. */
function awayWarnings(away: Away | null): Warning[] {
  if (away === null) return [];
  const since = away.lastMs === null ? null : new Date(away.lastMs).toISOString();
  const seen = away.isClusterSeen
    ? 'changes wait, and nothing is repaired'
    : 'what is shown is as it was last seen';
  const when = since === null ? '' : ` since ${since}`;
  return [{ code: 'REGION_AWAY', message: `${away.why}${when}: ${seen}` }];
}

const changeWarnings = (id: string, fields: readonly string[]): Warning[] =>
  fields.length === 0
    ? []
    : [
        {
          code: 'CLUSTER_CHANGED',
          message:
            `others have changed its Cluster: ${fewOf(fields)}. A restart takes that back: ` +
            `howdah service restart ${id}`,
        },
      ];

/** Standbys that are desired and do not run. */
export function warningsOf(found: Found | null): Warning[] {
  const desired = found?.cluster.desired ?? null;
  if (found === null || desired === null || !desired.running || found.cluster.leaving) return [];
  const nodes = nodesOf(found);
  if (nodes !== null)
    return warningsOfNodes(
      nodes.filter(({ serving }) => !serving),
      nodes.length,
    );
  const running = replicasOf(found).filter(({ node }) => isRunning(found, node)).length;
  const missing = desired.replicas - running;
  if (missing <= 0) return [];
  const { replicas, sync } = desired;
  const writes = running < sync ? `, and writes wait until ${sync} of them run` : '';
  const message =
    `${missing} of ${replicas} standbys do not run; CloudNativePG repairs this` + writes;
  return [{ code: 'REPLICA_MISSING', message }];
}

function warningsOfNodes(missing: readonly ReplicaState[], all: number): Warning[] {
  if (missing.length === 0) return [];
  const message = `${missing.length} of ${all} nodes are down or too far behind`;
  return [{ code: 'REPLICA_MISSING', message }];
}
