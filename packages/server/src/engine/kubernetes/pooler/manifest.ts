/**
 * The pooler of a service: a Deployment of PgBouncer beside the Cluster, and the Service at its
 * port. A `Pooler` of CloudNativePG has one mode for all its databases, and ours has two
 * (docs/decisions/0062-poolers-on-kubernetes.md).
 */
import { createHash } from 'node:crypto';
import type { Placement } from '@howdah/contract';
import { hostRules, poolerConf, poolLimits } from '../../pooler/conf.ts';
import { POOLER_ROLE } from '../../pooler/lookup.ts';
import { READER_ROLE } from '../../statements/session.ts';
import type { Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import { listeningAt } from '../cluster/manifest.ts';
import { type RegionSettings, nodesOf, priorityOf, pullsOf } from '../region/settings.ts';
import {
  AUTHORITY_SECRET,
  certificateSecret,
  CLUSTER_LABEL,
  LABELS,
  MANAGED,
  namespaceOf,
  POOLER_LABEL,
  poolerCertificate,
  poolerName,
  ROLE_LABEL,
} from '../names.ts';
import { GUARD_ROLE } from '../network/rules.ts';
import { USERS_FILE } from '../cluster/secrets.ts';

/** The annotation with the hash of the manifests that were written. */
export const POOLER_HASH = 'howdah.io/pooler-hash';

export type PoolerInput = Readonly<{
  id: string;
  /** The name of its Cluster. */
  cluster: string;
  /** The Service of its servers, and the secret of the role that it logs in as. */
  server: string;
  roleSecret: string;
  projectId: string;
  region: Pick<RegionSettings, 'code' | 'poolerImage'>;
  placement: Placement;
  /** Whether its image is pulled by the credentials of the region. */
  pulls: boolean;
  /** The port at which all nodes listen for it; null: it is behind the TLS gateway. */
  nodePort: number | null;
  running: boolean;
  /** The networks whose clients may connect; null: all. */
  networks: readonly string[] | null;
  /** The major version of PostgreSQL, and the connections of its server. */
  major: number;
  maxConnections: number;
  /** The unique id of its Cluster, which it goes with. */
  owner: string;
}>;

export type PoolerManifests = Readonly<{ service: Manifest; deployment: Manifest; hash: string }>;

/** The version of PgBouncer, by the tag of its image. */
export const poolerVersion = (image: string): string =>
  /:(\d+\.\d+[\w.]*)[^:/]*(?:@sha256:[0-9a-f]+)?$/.exec(image)?.[1] ?? '0.0';

export function poolerManifests(input: PoolerInput): PoolerManifests {
  const { id, cluster, projectId, region, running, owner } = input;
  const selector = { [POOLER_LABEL]: cluster };
  const labels = {
    ...MANAGED,
    ...selector,
    [LABELS.service]: id,
    [LABELS.project]: projectId,
    [LABELS.region]: region.code,
  };
  const { apiVersion, kind } = KINDS.cluster;
  const metadata = {
    name: poolerName(cluster),
    namespace: namespaceOf(projectId),
    labels,
    ownerReferences: [{ apiVersion, kind, name: cluster, uid: owner }],
  };
  const serviceSpec = listeningAt({ ...input, targetPort: PORT, selector });
  const spec = {
    replicas: running ? 1 : 0,
    selector: { matchLabels: selector },
    // Two at a time would make twice the connections.
    strategy: { type: 'Recreate' },
    template: {
      // A pooler's configuration is part of its pod, so another one makes another pod.
      metadata: { labels, annotations: { [CONF]: confOf(input), [RULES]: rulesOf(input) } },
      spec: podSpec(input),
    },
  };
  const hash = createHash('sha256')
    .update(JSON.stringify([serviceSpec, spec]))
    .digest('hex');
  return {
    service: { apiVersion: 'v1', kind: KINDS.service.kind, metadata, spec: serviceSpec },
    deployment: {
      apiVersion: KINDS.deployment.apiVersion,
      kind: KINDS.deployment.kind,
      metadata: { ...metadata, annotations: { [POOLER_HASH]: hash } },
      spec,
    },
    hash,
  };
}

const PORT = 6432;
const CONF = 'howdah.io/pgbouncer.ini';
const RULES = 'howdah.io/pgbouncer.hba';

/** Roles that no client may use: the server would let the last one in without a password. */
const OURS = [POOLER_ROLE, READER_ROLE, GUARD_ROLE, 'streaming_replica'];
const rulesOf = ({ networks }: PoolerInput): string =>
  hostRules(OURS, networks ?? ['0.0.0.0/0', '::/0']);

const confOf = ({ server, region, networks, major, maxConnections }: PoolerInput): string =>
  poolerConf({
    version: poolerVersion(region.poolerImage),
    listen: { address: '*', port: PORT },
    console: null,
    files: {
      hba: '/config/pgbouncer.hba',
      users: `/role/${USERS_FILE}`,
      certificate: '/tls/tls.crt',
      key: '/tls/tls.key',
    },
    allowedNetworks: networks,
    databases: null,
    server: {
      host: server,
      port: 5432,
      major,
      maxConnections,
      authority: '/authority/ca.crt',
      client: networks === null ? null : { certificate: '/client/tls.crt', key: '/client/tls.key' },
    },
    // The pod loads a renewed certificate itself.
    certificatePem: null,
  });

/**
 * Runs PgBouncer, and has it load a certificate that the kubelet has renewed. It is killed in the
 * end: it has no state to lose, and newer versions wait for their clients after a softer signal.
 */
const SCRIPT = `pgbouncer /config/pgbouncer.ini &
pooler=$!
trap 'kill -KILL $pooler' TERM
loaded=$(readlink /tls/..data)
while kill -0 $pooler 2>/dev/null; do
  sleep 5 &
  wait $!
  [ "$(readlink /tls/..data)" = "$loaded" ] && continue
  loaded=$(readlink /tls/..data)
  kill -HUP $pooler
done
wait $pooler
`;

/** The user of the images of CloudNativePG's project; any but root will do. */
const USER = 998;
/** A client has buffers, and the state of its TLS. */
const CLIENT_KIB = 64;
const BASE_MIB = 128;

/** With limited networks both answer at their own nodes only: one node is easier to reach. */
const nearPrimary = (cluster: string): object => ({
  podAffinity: {
    preferredDuringSchedulingIgnoredDuringExecution: [
      {
        weight: 100,
        podAffinityTerm: {
          labelSelector: { matchLabels: { [CLUSTER_LABEL]: cluster, [ROLE_LABEL]: 'primary' } },
          topologyKey: 'kubernetes.io/hostname',
        },
      },
    ],
  },
});

function podSpec(input: PoolerInput): object {
  const { cluster, roleSecret, region, networks, maxConnections } = input;
  const { clients } = poolLimits(maxConnections);
  const memory = `${BASE_MIB + Math.ceil((clients * CLIENT_KIB) / 1024)}Mi`;
  const file = (path: string, annotation: string) => ({
    path,
    fieldRef: { fieldPath: `metadata.annotations['${annotation}']` },
  });
  const secret = (name: string, secretName: string, keys: readonly string[]) => ({
    name,
    secret: {
      secretName,
      defaultMode: 0o440,
      items: keys.map((key) => ({ key, path: key })),
    },
  });
  const client =
    networks === null ? [] : [secret('client', poolerCertificate(cluster), ['tls.crt', 'tls.key'])];
  const mounts = ['config', 'role', 'tls', 'authority', ...client.map(({ name }) => name)];
  return {
    ...nodesOf(input.placement),
    ...priorityOf(input.placement),
    ...pullsOf(region.code, input.pulls),
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    terminationGracePeriodSeconds: 5,
    securityContext: {
      runAsNonRoot: true,
      runAsUser: USER,
      runAsGroup: USER,
      fsGroup: USER,
      seccompProfile: { type: 'RuntimeDefault' },
    },
    containers: [
      {
        name: 'pgbouncer',
        image: region.poolerImage,
        command: ['sh', '-c', SCRIPT],
        ports: [{ name: 'postgres', containerPort: PORT }],
        readinessProbe: { tcpSocket: { port: PORT }, periodSeconds: 1 },
        resources: { requests: { cpu: '50m', memory: '64Mi' }, limits: { memory } },
        securityContext: {
          allowPrivilegeEscalation: false,
          capabilities: { drop: ['ALL'] },
          readOnlyRootFilesystem: true,
        },
        volumeMounts: mounts.map((name) => ({ name, mountPath: `/${name}`, readOnly: true })),
      },
    ],
    ...(networks === null ? {} : { affinity: nearPrimary(cluster) }),
    volumes: [
      {
        name: 'config',
        downwardAPI: { items: [file('pgbouncer.ini', CONF), file('pgbouncer.hba', RULES)] },
      },
      secret('role', roleSecret, [USERS_FILE]),
      secret('tls', certificateSecret(cluster), ['tls.crt', 'tls.key']),
      secret('authority', AUTHORITY_SECRET, ['ca.crt']),
      ...client,
    ],
  };
}
