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
import { clusterName, LABELS, passwordSecret, setName } from '../names.ts';

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
