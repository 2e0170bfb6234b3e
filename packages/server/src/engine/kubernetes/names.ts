/** Names and labels of the objects of services. */

/** Objects that have it are ours. */
export const MANAGED = { 'app.kubernetes.io/managed-by': 'howdah' } as const;
export const LABELS = {
  project: 'howdah.io/project',
  service: 'howdah.io/service',
  region: 'howdah.io/region',
  /** The service that a read replica set follows. */
  parent: 'howdah.io/parent',
} as const;

/** The annotation that names the step whose end is waited for. */
export const AWAITED = 'howdah.io/awaited-step';

/** The label that CloudNativePG gives to all pods of a cluster. */
export const CLUSTER_LABEL = 'cnpg.io/cluster';
/** The label with the role of a server: `primary` is one of its values. */
export const ROLE_LABEL = 'cnpg.io/instanceRole';

/** The label that CloudNativePG gives to the snapshots of a Backup, with the name of that. */
export const BACKUP_LABEL = 'cnpg.io/backupName';

/** The label of the pods of a pooler, with the name of the Cluster. They lack that of servers. */
export const POOLER_LABEL = 'howdah.io/pooler';

/** The label of the pods of a verification, with the name of the Cluster that is verified. */
export const VERIFICATION_LABEL = 'howdah.io/verification';

/** The namespace of a project: CloudNativePG wants a Cluster and its secrets in one. */
export const namespaceOf = (projectId: string): string => `howdah-${projectId}`;

/**
 * The name of a Cluster: a label of DNS that begins with a letter and has at most 50 characters,
 * by the webhook of CloudNativePG. Ids may begin with a digit.
 */
export const clusterName = (id: string): string => `s-${id}`;

/**
 * Whether an object is in the namespace of its project. Users with rights in another namespace can
 * give an object there any name and labels.
 */
export function isInOurNamespace({
  namespace,
  labels,
}: Readonly<{ namespace: string; labels?: Readonly<Record<string, string>> }>): boolean {
  const project = labels?.[LABELS.project];
  return project === undefined
    ? namespace.startsWith(namespaceOf(''))
    : namespace === namespaceOf(project);
}

/** The name of the Cluster of a read replica set. */
export const setName = (id: string): string => `r-${id}`;

/** The id of the service or read replica set of a Cluster; null: the Cluster is none of ours. */
export function idOf(name: string): string | null {
  return /^[rs]-(.+)$/.exec(name)?.[1] ?? null;
}

/** The password of tsdbadmin, as a SCRAM verifier. */
export const passwordSecret = (id: string): string => `${clusterName(id)}-password`;
/** The password of the role of statements through the API. */
export const readerSecret = (id: string): string => `${clusterName(id)}-reader`;
/** The password of the role that ends sessions. */
export const controlSecret = (id: string): string => `${clusterName(id)}-control`;
/**
 * The pooler of a Cluster: the Deployment, the Service, and, of a service, the secret with the
 * password of its role.
 */
export const poolerName = (cluster: string): string => `${cluster}-pooler`;
/** The certificate by which a pooler connects to servers of limited networks, and its key. */
export const poolerCertificate = (cluster: string): string => `${cluster}-pooler-certificate`;
/** The authority of the clients of a Cluster, with its key. CloudNativePG makes it. */
export const clientAuthority = (cluster: string): string => `${cluster}-ca`;
/** The certificate of the servers of a Cluster, and the key of it. */
export const certificateSecret = (cluster: string): string => `${cluster}-certificate`;
/** The certificate of the role of its standbys. CloudNativePG makes it. */
export const replicationSecret = (id: string): string => `${clusterName(id)}-replication`;
/** The password by which a copy replicates from a service in another region. */
export const copySecret = (id: string): string => `${clusterName(id)}-move`;
/** The snapshot of its parent's volume that a fork is made of. */
export const originSnapshot = (id: string): string => `${clusterName(id)}-origin`;
/** The annotation of that backup with the pod that was the primary when it was asked for. */
export const ASKED_OF = 'howdah.io/primary';
/** The backup of its running parent that a fork is made of, and the snapshot of it. */
export const originBackup = (id: string): string => `${clusterName(id)}-online`;
/**
 * The service that a VolumeSnapshot was taken for, by its name. That of a fork has the labels of
 * its parent's volume.
 */
export const idOfSnapshot = (name: string): string | null =>
  /^s-(.+)-[^-]+$/.exec(name)?.[1] ?? null;
/** A backup by snapshot, and the snapshot of it. */
export const backupName = (id: string, takenMs: number): string =>
  `${clusterName(id)}-${new Date(takenMs).toISOString().replaceAll(/\D/g, '').slice(0, 14)}`;
/** The pod that examines a copy of the data of a service. */
export const verificationPod = (id: string): string => `${clusterName(id)}-verification`;
/** The Cluster that recovers the archive of a service, so that the copy can be examined. */
export const recoveredName = (id: string): string => `v-${id}`;
/** The annotation of a Backup with the result of its verification. */
export const VERIFICATION = 'howdah.io/verification';
/** The annotation of a Backup with the moment at which its last verification began. */
export const VERIFICATION_BEGUN = 'howdah.io/verification-begun';
/** A base backup in the object store. */
export const baseBackupName = (id: string, takenMs: number): string =>
  `${backupName(id, takenMs)}-base`;
/** The Service at the endpoint of a Cluster. */
export const endpointService = (cluster: string): string => `${cluster}-endpoint`;
/** The certificate of the authority of the installation, without its key, in each namespace. */
export const AUTHORITY_SECRET = 'howdah-ca';

/**
 * The number of a member, from the name of its pod. CloudNativePG counts pods from 1; members are
 * counted from 0, since a service without a recorded primary has member 0.
 */
export function instanceOf(pod: string): number | null {
  const number = /-([1-9]\d*)$/.exec(pod)?.[1];
  return number === undefined ? null : Number(number) - 1;
}

/** The name of the pod of a server of a Cluster. */
export const podIn = (cluster: string, instance: number): string => `${cluster}-${instance + 1}`;
/** The name of the pod of a member of a service. */
export const podOf = (id: string, instance: number): string => podIn(clusterName(id), instance);

/** The names by which the servers of a Cluster are reached from inside of the cluster. */
export function innerHosts(cluster: string, projectId: string): string[] {
  const namespace = namespaceOf(projectId);
  return ['rw', 'r'].flatMap((service) => {
    const name = `${cluster}-${service}`;
    return [name, `${name}.${namespace}`, `${name}.${namespace}.svc`];
  });
}
