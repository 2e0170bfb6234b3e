/** On which nodes pods run, and by which credentials their images are pulled. */
import type { Placement } from '@howdah/contract';
import type { Manifest } from '../api/client.ts';
import { CLUSTER_LABEL, LABELS } from '../names.ts';
import { secretManifest } from '../cluster/secrets.ts';

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
