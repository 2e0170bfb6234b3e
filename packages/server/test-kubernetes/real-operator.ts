/** The operator of CloudNativePG itself, from files that `tools/kube-rig/accept` was given. */
import { openApi } from './operator/api.ts';
import type { Operator } from './operator/operator.ts';
import { createKube, KubeError, tryWrite } from './probe.ts';
import type { Rig } from './rig.ts';
import { until } from '../test/until.ts';

/** Paths of the operator's manifest, and of an archive with the image that it names. */
type Files = Readonly<{ manifest: string; image: string }>;

const filesOf = (manifest?: string, image?: string): Files | null =>
  manifest === undefined || image === undefined ? null : { manifest, image };

/** null: tests use the double of the operator. */
export const realOperatorFiles = filesOf(process.env['CNPG_MANIFEST'], process.env['CNPG_IMAGE']);

/** The Barman Cloud plugin for it; null: object stores cannot be used with it. */
export const realPluginFiles = filesOf(
  process.env['CNPG_PLUGIN_MANIFEST'],
  process.env['CNPG_PLUGIN_IMAGE'],
);

const NAMESPACE = ['--namespace', 'cnpg-system'];
const DEPLOYMENT = 'deployment/cnpg-controller-manager';
const PLUGIN = 'deployment/barman-cloud';
const PODS = ['--selector', 'app.kubernetes.io/name=cloudnative-pg'];
const WITHIN = '--timeout=600s';

export async function startRealOperator(rig: Rig, files: Files): Promise<Operator> {
  const kubectl = (...args: string[]) => rig.inNode('kubectl', ...args, ...NAMESPACE);
  const kube = createKube(rig.connection);
  const api = openApi(rig.connection);
  const begin = async (): Promise<void> => {
    await kubectl('rollout', 'status', DEPLOYMENT, WITHIN);
    await untilAccepted(() => tryWrite(kube, 3000));
  };
  await rig.inNode('ctr', '--namespace', 'k8s.io', 'images', 'import', files.image);
  await rig.inNode('kubectl', 'apply', '--server-side', '--filename', files.manifest);
  // No registry is reached. Its limit of 100m is for clusters that nobody waits for, and the tests
  // need all of the node.
  // A Cluster that names no image gets that of the rig.
  const env = [{ name: 'POSTGRES_IMAGE_NAME', value: rig.image }];
  const manager = { name: 'manager', imagePullPolicy: 'Never', resources: null, env };
  const patch = JSON.stringify({ spec: { template: { spec: { containers: [manager] } } } });
  await kubectl('patch', DEPLOYMENT, '--patch', patch);
  await begin();
  if (realPluginFiles !== null) {
    await rig.inNode('ctr', '--namespace', 'k8s.io', 'images', 'import', realPluginFiles.image);
    await rig.inNode('kubectl', 'apply', '--server-side', '--filename', realPluginFiles.manifest);
    await kubectl('rollout', 'status', PLUGIN, WITHIN);
  }
  return {
    faults: { isStuck: false, phase: null, isUnhealthy: false },
    api,
    leave: async () => {
      await kubectl('scale', DEPLOYMENT, '--replicas=0');
      await kubectl('wait', 'pod', ...PODS, '--for=delete', WITHIN);
    },
    comeBack: async () => {
      await kubectl('scale', DEPLOYMENT, '--replicas=1');
      await begin();
    },
    close: async () => {
      kube.close();
      api.close();
    },
  };
}

/** Waits until the webhook of the operator has examined a Cluster. */
async function untilAccepted(tryOnce: () => Promise<void>): Promise<void> {
  const { error } = await until('the webhook has examined a Cluster', () =>
    tryOnce().then(
      () => ({ error: null }),
      (error: unknown) =>
        error instanceof KubeError && error.isTemporary
          ? null
          : { error: new Error('refused', { cause: error }) },
    ),
  );
  if (error !== null) throw error;
}
