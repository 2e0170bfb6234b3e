/** An installation whose services are in the cluster that `tools/kube-rig/run` has made. */
import { Type } from 'typebox';
import { openRig, type Rig } from '../../packages/server/test-kubernetes/rig.ts';
import {
  startOperator,
  type Operator,
} from '../../packages/server/test-kubernetes/operator/operator.ts';
import {
  realOperatorFiles,
  startRealOperator,
} from '../../packages/server/test-kubernetes/real-operator.ts';
import { namespaceOf } from '../../packages/server/src/engine/kubernetes/names.ts';
import { atEnd } from './cleanup.ts';
import { openCloud, type Cloud } from './cloud.ts';

/** The cluster, with the operator itself or its double. */
export type Kube = Readonly<{ rig: Rig; operator: Operator }>;

/** The region of an installation, and the ports of its nodes that services get. */
export const REGION = 'kube';
export const PORTS = { first: 30_100, last: 30_199 };

const NO_CLUSTER = 'no Kubernetes cluster: tools/kube-rig/run npm run bench kube-create';

let opened: Promise<Kube> | null = null;

/** @returns a string says why there is no cluster */
export async function openKube(): Promise<Kube | string> {
  if (process.env['KUBE_RIG'] === undefined) return NO_CLUSTER;
  opened ??= open();
  return opened;
}

async function open(): Promise<Kube> {
  const rig = await openRig();
  const operator =
    realOperatorFiles === null
      ? await startOperator(rig.connection, rig.image, rig.exec)
      : await startRealOperator(rig, realOperatorFiles);
  atEnd(operator.close);
  return { rig, operator };
}

/** The operator, in the words of a table. */
export const operatorInWords = (): string =>
  realOperatorFiles === null ? 'the operator’s double' : 'CloudNativePG itself';

/** Starts an installation with the cluster as a region. */
export async function openKubeCloud(
  { rig }: Kube,
  directory: string,
  settings: Readonly<Record<string, string>> = {},
): Promise<Cloud> {
  const cloud = await openCloud(directory, settings);
  const { code, stderr } = await cloud.cli(
    ...`region add ${REGION} --host ${rig.host} --storage-class ${rig.storageClass}`.split(' '),
    ...`--ports ${PORTS.first}-${PORTS.last} --image 17=${rig.image}`.split(' '),
    '--kubeconfig',
    rig.kubeconfigPath,
  );
  if (code !== 0) throw new Error(stderr);
  return { ...cloud, host: rig.host };
}

/** The body of a create of a service in the region. */
export const IN_REGION = {
  region_code: REGION,
  addons: [],
  cpu_millis: 'shared',
  memory_gbs: 'shared',
} as const;

const PODS = Type.Object({ metadata: Type.Object({ name: Type.String() }) });

/** The names of the pods of Clusters in the namespace of a project. */
export async function podNames({ operator: { api } }: Kube, projectId: string): Promise<string[]> {
  const path = `/api/v1/namespaces/${namespaceOf(projectId)}/pods`;
  const pods = await api.list(`${path}?labelSelector=cnpg.io/cluster`, PODS);
  return pods.map(({ metadata }) => metadata.name);
}
