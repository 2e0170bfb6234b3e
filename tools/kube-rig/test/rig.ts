/** The cluster that tools/kube-rig/run made for this run of tests. */
import { readFileSync } from 'node:fs';

export type Rig = {
  /** The path of a kubeconfig of an administrator, which holds everything it needs. */
  readonly kubeconfig: string;
  /** NodePorts answer at this address, from this machine only. */
  readonly nodeAddress: string;
  /** A storage class that can expand volumes. */
  readonly storageClass: string;
  /** An image with PostgreSQL that the node has already. */
  readonly postgresImage: string;
  /** The path of a program: `in COMMAND…`, `stop-api`, `start-api`, `evict`, `stop-evicting`. */
  readonly control: string;
};

const FIELDS = [
  'kubeconfig',
  'nodeAddress',
  'storageClass',
  'postgresImage',
  'control',
] as const satisfies readonly (keyof Rig)[];

/** @throws where no cluster runs, with the command that starts one */
export function readRig(path = process.env['KUBE_RIG']): Rig {
  if (path === undefined)
    throw new Error(
      'no Kubernetes cluster: tools/kube-rig/run npx vitest run --project kubernetes',
    );
  const json: unknown = JSON.parse(readFileSync(path, 'utf8'));
  if (!isRig(json)) throw new Error(`${path} must have these fields: ${FIELDS.join(', ')}`);
  return json;
}

function isRig(json: unknown): json is Rig {
  return (
    typeof json === 'object' &&
    json !== null &&
    FIELDS.every((field) => typeof Reflect.get(json, field) === 'string')
  );
}
