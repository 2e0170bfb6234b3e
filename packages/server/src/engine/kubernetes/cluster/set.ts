/**
 * The Cluster of a read replica set: a replica cluster of CloudNativePG, whose first server follows
 * the primary of a service, and whose other servers follow the first one
 * (docs/decisions/0068-read-replica-sets-on-kubernetes.md).
 */
import { ADMIN_ROLE, DATABASE_NAME } from '@howdah/contract';
import type { Manifest } from '../api/client.ts';
import {
  headOf,
  postgresOf,
  serversOf,
  servicesOf,
  serverToCopy,
  type ServersInput,
} from './manifest.ts';
import { clusterName, LABELS, passwordSecret, setName, podIn } from '../names.ts';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { KINDS, pathOf } from '../api/kinds.ts';
import type { Region } from '../region/region.ts';

export type SetInput = ServersInput &
  Readonly<{
    /** The service that it follows. */
    parent: string;
    nodes: number;
    /** A node that is more bytes behind gets no clients. */
    maximumLagBytes: number;
  }>;

/** For so long a node that does not stream, or is too far behind, still has clients. */
export const STALE_AFTER_SECONDS = 30;

export function setManifest(input: SetInput): Manifest {
  const { parent, nodes, maximumLagBytes } = input;
  const name = setName(input.id);
  const source = clusterName(parent);
  return {
    ...headOf(input, name, { [LABELS.parent]: parent }),
    spec: {
      ...serversOf(input, name),
      instances: nodes,
      postgresql: postgresOf(input),
      bootstrap: {
        pg_basebackup: {
          source,
          database: DATABASE_NAME,
          owner: ADMIN_ROLE,
          // Without one, CloudNativePG would make a password that no role has.
          secret: { name: passwordSecret(parent) },
        },
      },
      externalClusters: [serverToCopy(parent)],
      // Never false: its servers would accept writes, and could never follow again.
      replica: { enabled: true, source },
      enablePDB: nodes > 1,
      managed: { services: servicesOf(input, name, 'r') },
      // A switchover would do nothing but change who follows whom.
      primaryUpdateMethod: 'restart',
      probes: {
        startup: { periodSeconds: 1 },
        readiness: {
          type: 'streaming',
          maximumLag: String(maximumLagBytes),
          periodSeconds: 1,
          failureThreshold: STALE_AFTER_SECONDS,
        },
      },
    },
  };
}

// Why a read replica set can never follow its service again. PostgreSQL says it in the server log
// only: WAL that it needs is gone, or it has WAL that the service lost in a failover. Such a set is
// made again.

/** How often the log of a set that does not follow is read. */
const CHECK_EVERY_MS = 5000;
/** PostgreSQL tries to follow every few seconds, and says each time why it cannot. */
const RECENT_SECONDS = 20;
const LINES = 500;

const LINE = Type.Object({
  record: Type.Object({
    error_severity: Type.String(),
    message: Type.String(),
    /** A session of a user has another one, whatever it writes into the log. */
    backend_type: Type.Union([Type.Literal('walreceiver'), Type.Literal('startup')]),
  }),
});

/** In messages of PostgreSQL, for its own processes. They are not translated. */
const REASONS: readonly (readonly [message: RegExp, why: string])[] = [
  [/requested WAL segment \S+ has already been removed/, 'it needs WAL that its service removed'],
  [/requested starting point .* is not in this server's history/, 'its service has another past'],
  [/highest timeline \d+ of the primary is behind/, 'its service has another past'],
  [/new timeline \d+ forked off from current database system timeline/, 'it has another past'],
];

/** @param log the output of a pod */
export function reasonIn(log: string): string | null {
  for (const line of log.split('\n').toReversed()) {
    let parsed: unknown;
    try {
      parsed = JSON.parse(line);
    } catch {
      continue; // lines of other programs in the pod
    }
    if (!Value.Check(LINE, parsed)) continue;
    const { message } = parsed.record;
    const reason = REASONS.find(([pattern]) => pattern.test(message));
    if (reason !== undefined) return `${reason[1]} (${message.slice(0, 200)})`;
  }
  return null;
}

/** Asks a set of which nodes are not ready. @returns null: nothing is known to be lost */
export async function whyNotFollowing(region: Region, id: string): Promise<string | null> {
  const { cache, kube, followChecks } = region;
  const cluster = cache.cluster(id);
  const silent = cache.servers(id).filter(({ ready, leaving }) => !ready && !leaving);
  if (cluster === null || cluster.leaving || silent.length === 0) {
    followChecks.delete(id);
    return null;
  }
  const before = followChecks.get(id);
  if (before !== undefined && Date.now() - before.atMs < CHECK_EVERY_MS) return before.why;
  let why: string | null = null;
  for (const { n } of silent) {
    const pod = { kind: KINDS.pod, namespace: cluster.namespace, name: podIn(cluster.name, n) };
    const query = `container=postgres&tailLines=${LINES}&sinceSeconds=${RECENT_SECONDS}`;
    // A pod that has just been made has no log.
    why ??= reasonIn(await kube.text(`${pathOf(pod, 'log')}?${query}`).catch(() => ''));
  }
  followChecks.set(id, { atMs: Date.now(), why });
  return why;
}
