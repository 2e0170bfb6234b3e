/** An installation whose services can move to a region on Kubernetes without pods. */
import { readFile } from 'node:fs/promises';
import { hostname, networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { startFakeKubernetes } from '../test-kubernetes/probe.ts';
import { install } from './harness.ts';
import { withClient, type ServiceAccess } from './service-access.ts';

/** An address of this machine that is not of its loopback. */
const ADDRESS =
  Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? hostname();

const STORAGE_CLASS = '/apis/storage.k8s.io/v1/storageclasses/fast';

/** A service without a trace of a move. */
export const NOTHING = { roles: [], rule: false };

export type MoveCloud = Awaited<ReturnType<typeof startMoveCloud>>;

export async function startMoveCloud() {
  const kubernetes = await startFakeKubernetes();
  const cloud = await install({
    HOWDAH_HOST: '0.0.0.0',
    HOWDAH_PUBLIC_HOST: ADDRESS,
    HOWDAH_TLS: 'off',
  });

  /** Whether the cluster has a default storage class. */
  const setDefaultClass = (isDefault: boolean): void =>
    void kubernetes.put(STORAGE_CLASS, {
      metadata: { annotations: { 'storageclass.kubernetes.io/is-default-class': `${isDefault}` } },
      provisioner: 'example.com/fast',
    });

  const addRegion = async (): Promise<void> => {
    const { kubeconfig } = kubernetes;
    await cloud.client.POST('/regions', { body: { code: 'kube', kubeconfig } });
  };
  await addRegion();

  const move = async ({ service_id: id }: ServiceAccess, query = '?dry_run=true', to = 'kube') => {
    const answer = await cloud.request('POST', `/services/${id}/move${query}`, { region_code: to });
    const { code, note, details } = Object(answer.body);
    return { status: answer.status, code, note, reasons: Object(details).reasons };
  };

  const clusters = (): number =>
    [...kubernetes.objects.keys()].filter((path) => path.includes('/clusters/s-')).length;

  /** The roles of a service that a move makes, and whether its rules let a copy in. */
  const tracesOf = async (service: ServiceAccess): Promise<{ roles: string[]; rule: boolean }> => {
    const roles = await withClient(cloud, service, async (client) => {
      const { rows } = await client.query<{ name: string }>(
        `select rolname::text as name from pg_roles
         where rolname in ('postgres', 'streaming_replica', 'howdah_control') order by rolname`,
      );
      return rows.map(({ name }) => name);
    });
    const path = join(cloud.home, 'data', 'services', service.service_id, 'config', 'pg_hba.conf');
    return { roles, rule: /replication +postgres/.test(await readFile(path, 'utf8')) };
  };

  const operationOf = async ({ service_id: id }: ServiceAccess) =>
    (await cloud.operations(id)).find(({ kind }) => kind === 'move');

  /** Adds the region that a test has removed, without the objects that it has left. */
  const addRegionAgain = async (): Promise<void> => {
    for (const path of kubernetes.objects.keys())
      if (/\/(clusters|secrets)\/s-/.test(path)) kubernetes.objects.delete(path);
    await addRegion();
    setDefaultClass(true);
  };

  const removeRegion = () =>
    cloud.client.DELETE('/regions/{region_code}', { params: { path: { region_code: 'kube' } } });

  return {
    cloud,
    kubernetes,
    setDefaultClass,
    addRegion,
    addRegionAgain,
    removeRegion,
    move,
    clusters,
    tracesOf,
    operationOf,
  };
}
