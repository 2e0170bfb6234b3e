/** The settings of a region, and how its pods have them. */
import type { Placement, AddonExtension } from '@howdah/contract';
import type { Manifest } from '../api/client.ts';
import { CLUSTER_LABEL, LABELS } from '../names.ts';
import { secretManifest } from '../cluster/secrets.ts';

/** Settings of a region. */
export type RegionSettings = Readonly<{
  code: string;
  /** null: the default class of the cluster. */
  storageClass: string | null;
  /** The image of PostgreSQL for each major version. */
  images: Readonly<Record<number, string>>;
  /** The extensions of each of them beside the contributed modules. */
  extensions: Readonly<Record<number, readonly AddonExtension[]>>;
  /** The image of PgBouncer, with its version as the tag. */
  poolerImage: string;
  /** The name by which clients reach the nodes; the certificates of servers have it. */
  host: string;
  /** The domain of services at the TLS gateway; null: services have ports of the nodes. */
  domain: string | null;
  /** Where pods run of a service, or of a set with the fields of its service before its own. */
  placementOf: (...ids: readonly string[]) => Placement;
  /** The storage class of a volume for WAL of new services; null: WAL is with the data. */
  walStorageClass: string | null;
  /** Whether a size is a bound of the CPU too, for services that do not say it themselves. */
  boundsCpu: boolean;
  /** The credentials of registries; null: none are set. `config` is null if it is unreadable. */
  imagePull: Readonly<{ config: string | null }> | null;
}>;

// On which nodes pods run, and by which credentials their images are pulled.

/** The credentials of registries of a region, in each namespace that has services of it. */
export const pullSecret = (region: string): string => `howdah-registries-${region}`;

/** @param config the config.json of docker or podman */
export function pullSecretManifest(region: string, projectId: string, config: string): Manifest {
  return secretManifest(
    pullSecret(region),
    projectId,
    { [LABELS.region]: region },
    { '.dockerconfigjson': config },
    'kubernetes.io/dockerconfigjson',
  );
}

/** The credentials of a pod or of a Cluster. */
export const pullsOf = (region: string, pulls: boolean): object =>
  pulls ? { imagePullSecrets: [{ name: pullSecret(region) }] } : {};

/** The nodes that may run a pod, as its affinity or its own fields have them. */
export const nodesOf = ({ node_selector: labels, tolerations }: Placement): object => ({
  ...(labels === undefined ? {} : { nodeSelector: labels }),
  ...(tolerations === undefined ? {} : { tolerations: tolerations.map(tolerationOf) }),
});

const tolerationOf = ({
  key,
  value,
  effect,
}: NonNullable<Placement['tolerations']>[number]): object => ({
  key,
  ...(value === undefined ? { operator: 'Exists' } : { operator: 'Equal', value }),
  ...(effect === undefined ? {} : { effect }),
});

export const priorityOf = ({ priority_class: name }: Placement): object =>
  name === undefined ? {} : { priorityClassName: name };

/** How the servers of a Cluster are spread. @param cluster the name of it */
export const spreadOf = ({ topology_spread: spread }: Placement, cluster: string): object =>
  spread === undefined
    ? {}
    : {
        topologySpreadConstraints: spread.map(({ topology_key: topologyKey, ...rule }) => ({
          topologyKey,
          maxSkew: rule.max_skew ?? 1,
          whenUnsatisfiable: rule.required === true ? 'DoNotSchedule' : 'ScheduleAnyway',
          labelSelector: { matchLabels: { [CLUSTER_LABEL]: cluster } },
        })),
      };
