/** The cluster that the tests use, as `tools/kube-rig/run` describes it, with its API server. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { readRig } from '../../../tools/kube-rig/test/rig.ts';
import { readKubeconfig } from './probe.ts';

type Pod = Readonly<{ metadata: Readonly<{ namespace: string; name: string }> }>;

/** A pod that ends never answers. */
const EXEC_MS = 180_000;

export type Rig = Awaited<ReturnType<typeof openRig>>;

export async function openRig() {
  const { kubeconfig, nodeAddress, storageClass, postgresImage, control } = readRig();
  const text = await readFile(kubeconfig, 'utf8');
  const run = async (
    command: 'stop-api' | 'start-api' | 'evict' | 'stop-evicting',
  ): Promise<void> => {
    await promisify(execFile)(control, [command]);
  };
  return {
    /** Runs a command in the namespaces of the node. */
    inNode: (...command: string[]) => promisify(execFile)(control, ['in', ...command]),
    /** Which requests the API server got, of administrators and of the control plane in it. */
    auditLog: join(dirname(kubeconfig), 'audit.log'),
    /** Runs a script of the shell in the container of PostgreSQL of a pod. @returns its output */
    exec: async ({ metadata }: Pod, script: string): Promise<string> => {
      const { namespace, name } = metadata;
      const pod = ['--namespace', namespace, name, '--container', 'postgres'];
      const command = ['in', 'kubectl', 'exec', ...pod, '--', 'sh', '-c', script];
      const { stdout } = await promisify(execFile)(control, command, { timeout: EXEC_MS });
      return stdout;
    },
    /** The directory of its containerd with the files of images. */
    snapshots: join(
      dirname(kubeconfig),
      'var-lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots',
    ),
    host: nodeAddress,
    /** The address of this machine for the node, as the manual of the rig has it. */
    machineHost: nodeAddress.replace(/\.2$/, '.1'),
    storageClass,
    image: postgresImage,
    kubeconfigPath: kubeconfig,
    connection: readKubeconfig(text, null),
    stopApi: () => run('stop-api'),
    startApi: () => run('start-api'),
    /** Lets the kubelet find too little memory: it evicts all pods. */
    evict: () => run('evict'),
    stopEvicting: () => run('stop-evicting'),
  };
}
