/** Opens and closes the regions on Kubernetes, at a start and while the control plane runs. */
import { ApiError, type Finding } from '@howdah/contract';
import { createKube, type Kube } from './engine/kubernetes/api/client.ts';
import { KubeError } from './engine/kubernetes/api/errors.ts';
import {
  BadKubeconfig,
  readKubeconfig,
  readServiceAccount,
  type AllowedPrograms,
  type Connection,
} from './engine/kubernetes/api/kubeconfig.ts';
import {
  examineObjectStore,
  examinePlacement,
  examineGateway,
  findRoutedRegion,
} from './engine/kubernetes/doctor-region.ts';
import { countClusters, examineCluster, findNodeHost } from './engine/kubernetes/doctor.ts';
import { createKubernetesEngine, type KubernetesEngineOptions } from './engine/kubernetes/index.ts';
import type { ObjectStore } from './engine/object-store.ts';
import { StoreError, tryStore } from './engine/kubernetes/backup/s3.ts';
import type { Region } from './engine/regions.ts';
import type { Sealer } from './lib/sealer.ts';
import { createClusterRecords } from './reconcile/cluster-records.ts';
import { runRegion, type Control, type RunningRegion } from './run-region.ts';
import {
  openAccess,
  openObjectStore,
  type ClusterAccess,
  type KubernetesRegionContext,
} from './services/kubernetes-regions.ts';
import { closeAll, type Closers } from './startup.ts';
import { createKeptLogs } from './store/kept-logs.ts';
import { listKubernetesRegions, type KubernetesRegionRow } from './store/kubernetes-regions.ts';

type Clusters = KubernetesRegionContext['clusters'];

/** @param running the regions that run, by their codes */
export function createKubernetesRegions(
  control: Control,
  sealer: Sealer,
  running: Map<string, RunningRegion>,
): Clusters & { openAll: () => Promise<void> } {
  const { config, regions, log } = control;
  const programs = config.credentialPrograms;
  const stores = new Map<string, ObjectStore | null>();
  const closersOf = new Map<string, Closers>();
  /** The regions that run, as they are set now. */
  const rows = new Map<string, KubernetesRegionRow>();
  const open = async (row: KubernetesRegionRow): Promise<void> => {
    // A call and its repetition may both have added it.
    if (regions.all.some(({ code }) => code === row.code)) return;
    const opened = openObjectStore(sealer, row);
    if (row.object_store !== null && opened === null)
      log.warn(
        { region: row.code },
        'the key of the object store cannot be read: HOWDAH_HOME/secrets.key is not the file it ' +
          'was; no base backups are taken until howdah region object-store sets it again',
      );
    stores.set(row.code, opened);
    rows.set(row.code, row);
    const region = await openRegion(control, sealer, row, {
      current: () => rows.get(row.code) ?? row,
      objectStore: () => stores.get(row.code) ?? null,
      changed: (id) => running.get(row.code)?.lookAt(id),
    });
    const closers: Closers = [];
    closersOf.set(row.code, closers);
    control.closers.push(() => closeAll(closers));
    const task = runRegion({ ...control, closers }, region);
    running.set(row.code, task);
    regions.add(region);
    await task.begin();
    task.beginTasks();
  };
  return {
    sealer,
    open,
    openAll: async () => {
      for (const row of await listKubernetesRegions(control.store.db))
        await open(row).catch((error: unknown) =>
          log.error({ region: row.code, err: error }, 'could not open a region on Kubernetes'),
        );
    },
    tryStore: (store, readOnly) =>
      tryStore(store, readOnly).catch((error: unknown) => {
        throw error instanceof StoreError
          ? new ApiError('INVALID_REQUEST', `endpoint: ${error.message}`)
          : error;
      }),
    useStore: (row) => void stores.set(row.code, openObjectStore(sealer, row)),
    useSettings: (row) => void rows.set(row.code, row),
    close: async (code) => {
      regions.remove(code);
      rows.delete(code);
      running.delete(code);
      await closeAll(closersOf.get(code) ?? []);
      closersOf.delete(code);
      stores.delete(code);
    },
    probe: (access, code, isDry) =>
      withCluster(access, isDry ? null : programs, async (kube, { server }) => ({
        server: server.origin,
        host: await findNodeHost(kube),
        clusters: await countClusters(kube, code),
        routed: await findRoutedRegion(kube),
      })),
    examine: (row) => examine(sealer, programs, row),
  };
}

const examine = async (
  sealer: Sealer,
  programs: AllowedPrograms,
  row: KubernetesRegionRow,
): Promise<Finding[]> =>
  withCluster(accessOrFail(sealer, row), programs, async (kube) => [
    ...(await examineCluster(kube, row.storage_class, `howdah-${row.code}`)),
    ...(await examinePlacement(kube, row)),
    ...(row.domain === null ? [] : await examineGateway(kube, row.domain)),
    ...(await examineObjectStore(kube, {
      code: row.code,
      isSet: row.object_store !== null,
      store: openObjectStore(sealer, row),
    })),
  ]);

type Opening = Pick<KubernetesEngineOptions, 'objectStore' | 'changed'> &
  Readonly<{
    /** The region as it is set now. */
    current: () => KubernetesRegionRow;
  }>;

async function openRegion(
  { config, authority, log, rounds, store, regions }: Control,
  sealer: Sealer,
  row: KubernetesRegionRow,
  { current, ...more }: Opening,
): Promise<Region> {
  const { code, host, first_port, last_port } = row;
  const portRange = [first_port, last_port] as const;
  const engine = createKubernetesEngine({
    settings: {
      code,
      host,
      domain: row.domain,
      storageClass: row.storage_class,
      boundsCpu: config.boundsCpu,
      get images() {
        return current().images;
      },
      get extensions() {
        return current().extensions;
      },
      get poolerImage() {
        return current().pooler_image;
      },
      placementOf: (...ids) => {
        const { placement, service_placements: own } = current();
        return Object.assign({}, placement, ...ids.map((id) => own[id]));
      },
      get walStorageClass() {
        return current().wal_storage_class;
      },
      get imagePull() {
        const { image_pull_sealed: sealed } = current();
        return sealed === null ? null : { config: sealer.open(sealed) };
      },
    },
    connection: await connectionOf(accessOrFail(sealer, row), config.credentialPrograms),
    mayWrite: store.holdsLock,
    authority,
    records: createClusterRecords(store, { code, portRange }, log),
    keptLogs: createKeptLogs(store, code),
    rounds,
    readLagLimit: config.readLagLimit,
    backups: config.backups,
    ...more,
    failed: (error) =>
      log.warn({ region: code, err: error }, 'a background task failed; trying again later'),
  });
  // A namespace for each project keeps them apart; a spare has no project.
  const aliases = regions.first === null ? config.regionAliases : [];
  return { code, aliases, engine, portRange, singleProject: false, spares: 0 };
}

/** @throws ApiError CONFLICT when the key is not that by which the kubeconfig was encrypted */
export function accessOrFail(sealer: Sealer, row: KubernetesRegionRow): ClusterAccess {
  const opened = openAccess(sealer, row);
  if (opened !== null) return opened.access;
  throw new ApiError(
    'CONFLICT',
    `the kubeconfig of the region ${row.code} cannot be read: HOWDAH_HOME/secrets.key is not the ` +
      'file it was; restore it from a backup of the control plane',
  );
}

const connectionOf = (
  access: ClusterAccess,
  programs: AllowedPrograms,
): Promise<Connection> | Connection =>
  access === null
    ? readServiceAccount()
    : readKubeconfig(access.kubeconfig, access.context, programs);

/**
 * Runs work with a connection of its own.
 *
 * @param programs that the kubeconfig may run
 * @throws ApiError INVALID_REQUEST for a kubeconfig that cannot be used, and without an answer
 */
export async function withCluster<T>(
  access: ClusterAccess,
  programs: AllowedPrograms,
  work: (kube: Kube, connection: Connection) => Promise<T>,
): Promise<T> {
  let kube: Kube | null = null;
  try {
    const connection = await connectionOf(access, programs);
    kube = createKube(connection);
    return await work(kube, connection);
  } catch (error) {
    if (error instanceof BadKubeconfig)
      throw new ApiError('INVALID_REQUEST', `kubeconfig: ${error.message}`);
    if (error instanceof KubeError) throw new ApiError('INVALID_REQUEST', error.message);
    throw error;
  } finally {
    kube?.close();
  }
}
