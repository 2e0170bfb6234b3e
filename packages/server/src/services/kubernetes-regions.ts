/** Calls on regions on Kubernetes: add, list, examine and remove one. */
import {
  ApiError,
  MAX_KUBERNETES_REGIONS,
  type AddRegionBody,
  type Finding,
  type KubernetesRegionDocument,
  type SetObjectStoreBody,
  type SetImagesBody,
} from '@howdah/contract';
import type { Sealer } from '../events/sealer.ts';
import { RESERVED_REGIONS } from '../settings.ts';

import {
  countVpcsOf,
  deleteKubernetesRegion,
  findKubernetesRegion,
  hasUnfinishedPastForks,
  insertKubernetesRegion,
  listImageNeeds,
  listKubernetesRegions,
  listPooled,
  lockKubernetesRegions,
  updateObjectStore,
  updateImages,
  type KubernetesRegionRow,
} from '../store/kubernetes-regions.ts';
import { folderOf, type ObjectStore } from '../engine/object-store.ts';
import { newId } from '../lib/ids.ts';
import { makeDue } from '../store/leases.ts';
import { insertRegion, isInUse, lockRegion } from '../store/regions.ts';
import type { ObjectStorePlace, Tx } from '../store/tables.ts';
import { makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './context.ts';
import { gatewayTaken, portsOf, refuseDomain } from './region-domain.ts';
import { imagesOf, POOLER_IMAGE, refuseNeeded } from './region-images.ts';
import { refusePlacement, sealedRegistries } from './region-registries.ts';
import { findRegion } from './regions.ts';

/** How a cluster is reached; null: by the service account of the pod. */
export type ClusterAccess = Readonly<{ kubeconfig: string; context: string | null }> | null;

/** The context of calls on regions on Kubernetes. */
export type KubernetesRegionContext = ControlContext & {
  clusters: {
    sealer: Sealer;
    /**
     * Asks a cluster who it is.
     *
     * @returns its address; the host of its first node, or null if no node is ready; how many
     *   Clusters it has of a region with the code; and a region that has routes at its TLS gateway,
     *   or null if none has
     * @throws ApiError INVALID_REQUEST when it cannot be reached that way
     */
    probe: (
      access: ClusterAccess,
      code: string,
    ) => Promise<{
      server: string;
      host: string | null;
      clusters: number;
      routed: string | null;
    }>;
    /** Examines the cluster of a region. */
    examine: (row: KubernetesRegionRow) => Promise<Finding[]>;
    /** Begins to serve a region. */
    open: (row: KubernetesRegionRow) => Promise<void>;
    /**
     * Lists an object of a store, and writes one and removes it.
     *
     * @param readOnly only lists
     * @throws ApiError INVALID_REQUEST when it does not answer
     */
    tryStore: (store: ObjectStore, readOnly: boolean) => Promise<void>;
    /** Has a region keep WAL and base backups in the bucket that is set. */
    useStore: (row: KubernetesRegionRow) => void;
    /** Has a region use the images and the placement that are set. */
    useSettings: (row: KubernetesRegionRow) => void;
    /** Ends serving a region. */
    close: (code: string) => Promise<void>;
  };
};

export async function describeKubernetesRegions({
  store,
}: KubernetesRegionContext): Promise<KubernetesRegionDocument[]> {
  return (await listKubernetesRegions(store.db)).map(documentOf);
}

export function documentOf(row: KubernetesRegionRow): KubernetesRegionDocument {
  const { code, server, host, domain, first_port, last_port, storage_class, pooler_image } = row;
  const { object_store: store } = row;
  const created = row.created.toISOString();
  return {
    code,
    server,
    host,
    domain,
    first_port,
    last_port,
    storage_class,
    images: { ...row.images },
    extensions: Object.fromEntries(
      Object.entries(row.extensions).map(([major, names]) => [major, [...names]]),
    ),
    pooler_image,
    placement: row.placement,
    service_placements: { ...row.service_placements },
    wal_storage_class: row.wal_storage_class,
    image_pull_registries: [...row.image_pull_registries],
    object_store: store === null ? null : storeDocument(store),
    created,
  };
}

/** Adds a region, once its cluster answers, and begins to serve it. */
export async function addRegion(
  context: KubernetesRegionContext,
  caller: Caller,
  body: AddRegionBody,
): Promise<Outcome> {
  const { store, clusters } = context;
  const { first_port, last_port } = portsOf(body);
  refuseTaken(context, body.code);
  const { images, extensions } = imagesOf(body);
  const pullSecret = body.image_pull_secret ?? null;
  refusePlacement(body.placement ?? {});
  const access = accessOf(body);
  const probed = await clusters.probe(access, body.code);
  if (probed.clusters > 0)
    throw new ApiError('CONFLICT', takenInCluster(body.code, probed.clusters));
  const domain = body.domain ?? null;
  if (domain !== null && probed.routed !== null)
    throw new ApiError('CONFLICT', gatewayTaken(probed.routed));
  const named = domain ?? body.host ?? probed.host;
  if (named === null)
    throw new ApiError('INVALID_REQUEST', 'host: the cluster has no node that is ready; name one');
  const added = await makeChange(store, caller, async (tx) => {
    const rows = await lockKubernetesRegions(tx);
    refuseMore(rows);
    refuseTaken(context, body.code);
    if (domain !== null) refuseDomain(rows, { domain, server: probed.server });
    const row = await insertKubernetesRegion(tx, {
      code: body.code,
      server: probed.server,
      sealed: access === null ? null : clusters.sealer.seal(JSON.stringify(access)),
      host: named,
      domain,
      first_port,
      last_port,
      storage_class: body.storage_class ?? null,
      images: JSON.stringify(images),
      extensions: JSON.stringify(extensions),
      pooler_image: body.pooler_image ?? POOLER_IMAGE,
      placement: JSON.stringify(body.placement ?? {}),
      wal_storage_class: body.wal_storage_class ?? null,
      ...sealedRegistries(clusters.sealer, pullSecret),
    });
    await insertRegion(tx, body.code, first_port);
    return { operationId: null, doc: JSON.stringify(documentOf(row)) };
  });
  await serve(context, body.code);
  return added;
}

/** Sets the images of a region: its servers get them with their next start. */
export async function setImages(
  context: KubernetesRegionContext,
  caller: Caller,
  code: string,
  body: SetImagesBody,
): Promise<Outcome> {
  const { store, clusters } = context;
  const { images, extensions } = imagesOf(body);
  const set = await makeChange(store, caller, async (tx) => {
    const row = rowOrRefuse(await lockKubernetesRegions(tx), code);
    for (const { pg_version: major, addons } of await listImageNeeds(tx, code))
      if (major !== null) refuseNeeded(code, { images, extensions }, { major, addons });
    const written = await updateImages(tx, code, {
      images: JSON.stringify(images),
      extensions: JSON.stringify(extensions),
      pooler_image: body.pooler_image ?? row.pooler_image,
    });
    return { operationId: null, doc: JSON.stringify(documentOf(written)) };
  });
  const row = await findKubernetesRegion(store.db, code);
  if (row === null || caller.dryRun) return set;
  clusters.useSettings(row);
  // A settled service is looked at once an hour.
  await store.db.transaction().execute(async (tx) => {
    for (const id of await listPooled(tx, code)) await makeDue(tx, id);
  });
  return set;
}

/** Two installations with one code would each renew the certificates of the other's servers. */
const takenInCluster = (code: string, clusters: number): string =>
  `the cluster has ${clusters === 1 ? 'a Cluster' : `${clusters} Clusters`} of another region ` +
  `${code}, of another installation or of one that is lost: choose another code, or remove what ` +
  'kubectl get clusters.postgresql.cnpg.io --all-namespaces ' +
  `--selector howdah.io/region=${code} lists`;

function accessOf({ kubeconfig, context }: AddRegionBody): ClusterAccess {
  if (kubeconfig !== undefined) return { kubeconfig, context: context ?? null };
  if (context === undefined) return null;
  throw new ApiError('INVALID_REQUEST', 'context: needs a kubeconfig; send one, or leave both out');
}

/** The kubeconfig of a region; null: it was sealed with another key. */
export function openAccess(
  sealer: Sealer,
  row: KubernetesRegionRow,
): { access: ClusterAccess } | null {
  if (row.sealed === null) return { access: null };
  const opened = sealer.open(row.sealed);
  if (opened === null) return null;
  // Sealed by ourselves: it has the shape that was sealed.
  const access: ClusterAccess = JSON.parse(opened);
  return { access };
}

const storeDocument = ({ id, since, ...place }: ObjectStorePlace) => ({
  ...place,
  folder: folderOf({ id }),
  since,
});

/** The bucket of a region, as it is kept; null: none is set, or it was sealed with another key. */
export function openObjectStore(
  sealer: Sealer,
  { object_store: place, object_store_sealed: sealed }: KubernetesRegionRow,
): ObjectStore | null {
  const opened = sealed === null ? null : sealer.open(sealed);
  if (place === null || opened === null) return null;
  // Sealed by ourselves: it has the shape that was sealed.
  const secrets: Pick<ObjectStore, 'key' | 'caPem'> = JSON.parse(opened);
  const { key_id: keyId, since, ...rest } = place;
  return { ...rest, ...secrets, keyId, sinceMs: Date.parse(since) };
}

/** Sets where WAL and base backups of the services of a region are kept. */
export async function setObjectStore(
  context: KubernetesRegionContext,
  caller: Caller,
  code: string,
  { key, ca_pem: pem, move = false, ...asked }: SetObjectStoreBody,
): Promise<Outcome> {
  const { store, clusters } = context;
  const found = rowOrRefuse(await listKubernetesRegions(store.db), code);
  const { key_id: keyId, ...body } = asked;
  const place = { ...body, endpoint: originOf(body.endpoint) };
  refuseMove(found, place, move);
  const caPem = pem ?? null;
  const fresh = { id: newId(), since: new Date().toISOString() };
  const { id: tried } = keptOr(fresh, found.object_store, place);
  const access = { ...place, keyId, key, caPem, id: tried, sinceMs: 0 };
  await clusters.tryStore(access, caller.dryRun);
  const set = await makeChange(store, caller, async (tx) => {
    const row = rowOrRefuse(await lockKubernetesRegions(tx), code);
    refuseMove(row, place, move);
    const { id, since } = keptOr(fresh, row.object_store, place);
    if (id === fresh.id && (await hasUnfinishedPastForks(tx, code)))
      throw new ApiError('CONFLICT', FORKS_FIRST);
    const written = await updateObjectStore(
      tx,
      code,
      JSON.stringify({ ...place, key_id: keyId, id, since }),
      clusters.sealer.seal(JSON.stringify({ key, caPem })),
    );
    return { operationId: null, doc: JSON.stringify(documentOf(written)) };
  });
  const row = await findKubernetesRegion(store.db, code);
  if (row !== null) clusters.useStore(row);
  return set;
}

const FORKS_FIRST =
  'services of the region are being forked from a moment, out of the present place: wait until ' +
  'they are READY, or delete them';

/** Only a key of the same place: all that is there stays in use. */
const keptOr = <T>(fresh: T, before: (Place & T) | null, place: Place): T =>
  before !== null && isSamePlace(before, place) ? before : fresh;

type Place = Pick<ObjectStorePlace, 'endpoint' | 'bucket' | 'region'>;

/** The same address is written in several ways: with capitals, or with the port 443. */
const originOf = (endpoint: string): string =>
  URL.canParse(endpoint) ? new URL(endpoint).origin : endpoint;

const isSamePlace = (before: Place, { endpoint, bucket, region }: Place): boolean =>
  before.endpoint === endpoint && before.bucket === bucket && before.region === region;

/** @throws ApiError CONFLICT for another place that was not asked for as such */
function refuseMove(
  { code, object_store: before }: KubernetesRegionRow,
  place: Place,
  move: boolean,
) {
  if (before === null || move || isSamePlace(before, place)) return;
  throw new ApiError(
    'CONFLICT',
    `the region ${code} keeps its archives in the bucket ${before.bucket} (region ` +
      `${before.region}) at ${before.endpoint}; another place begins empty, and nothing of ` +
      'before can be forked then: ask with "move": true (--move), or keep the place',
  );
}

async function serve({ store, clusters }: KubernetesRegionContext, code: string): Promise<void> {
  const row = await findKubernetesRegion(store.db, code);
  if (row !== null) await clusters.open(row);
}

function refuseTaken({ regions }: KubernetesRegionContext, code: string): void {
  if (findRegion(regions, code) !== undefined || RESERVED_REGIONS.includes(code))
    throw new ApiError('CONFLICT', `code: there is a region ${code} already; choose another code`);
}

function refuseMore(rows: readonly KubernetesRegionRow[]): void {
  if (rows.length >= MAX_KUBERNETES_REGIONS)
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `regions on Kubernetes: the installation has ${rows.length}, of ${MAX_KUBERNETES_REGIONS} ` +
        'that are allowed; remove one first',
    );
}

/** Ends serving a region that has no services; nothing in its cluster is changed. */
export async function removeRegion(
  { store, clusters }: KubernetesRegionContext,
  caller: Caller,
  code: string,
): Promise<Outcome> {
  const removed = await makeChange(store, caller, async (tx) => {
    rowOrRefuse(await lockKubernetesRegions(tx), code);
    await refuseUsed(tx, code);
    await deleteKubernetesRegion(tx, code);
    return { operationId: null };
  });
  await clusters.close(code);
  return removed;
}

async function refuseUsed(tx: Tx, code: string): Promise<void> {
  await lockRegion(tx, code);
  if (await isInUse(tx, code))
    throw new ApiError(
      'CONFLICT',
      `the region ${code} has services, deleted ones that can be restored, or former servers of ` +
        'moved ones, which are kept as long; purge the services first (howdah service purge)',
    );
  const vpcs = await countVpcsOf(tx, code);
  if (vpcs > 0)
    throw new ApiError('CONFLICT', `the region ${code} has ${vpcs} VPCs; delete them first`);
}

export function rowOrRefuse(
  rows: readonly KubernetesRegionRow[],
  code: string,
): KubernetesRegionRow {
  const row = rows.find((one) => one.code === code);
  if (row !== undefined) return row;
  throw new ApiError(
    'NOT_FOUND',
    `no region on Kubernetes has the code ${JSON.stringify(code.slice(0, 64))}; ` +
      'GET /regions lists them',
  );
}

/** Examines the cluster of a region. */
export async function examineRegion(
  { store, clusters }: KubernetesRegionContext,
  code: string,
): Promise<Finding[]> {
  return clusters.examine(rowOrRefuse(await listKubernetesRegions(store.db), code));
}
