/** Calls on regions on Kubernetes: add, list, examine and remove one. */
import {
  ApiError,
  MAX_KUBERNETES_REGIONS,
  type AddRegionBody,
  type Finding,
  type KubernetesRegionDocument,
  type SetObjectStoreBody,
  type SetImagesBody,
  GATEWAY_PORT,
  NODE_PORTS,
  type Addon,
  type AddonExtension,
  type Placement,
} from '@howdah/contract';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import type { Sealer } from '../lib/sealer.ts';
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
import { makeDue } from '../store/claims.ts';
import { insertRegion, isInUse, lockRegion } from '../store/regions.ts';
import type { ObjectStorePlace, Tx } from '../store/tables.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { findRegion } from './regions.ts';
import { extensionsOf } from '../domain/postgres/extension-rules.ts';
import { majorOfImage } from '../domain/postgres/image.ts';

/** How a cluster is reached; null: by the service account of the pod. */
export type ClusterAccess = Readonly<{ kubeconfig: string; context: string | null }> | null;

/** The context of calls on regions on Kubernetes. */
export type KubernetesRegionContext = ControlContext & {
  clusters: {
    sealer: Sealer;
    /**
     * Asks a cluster who it is.
     *
     * @param isDry runs no program of the kubeconfig
     * @returns its address; the host of its first node, or null if no node is ready; how many
     *   Clusters it has of a region with the code; and a region that has routes at its TLS gateway,
     *   or null if none has
     * @throws ApiError INVALID_REQUEST when it cannot be reached that way
     */
    probe: (
      access: ClusterAccess,
      code: string,
      isDry: boolean,
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
  const probed = await clusters.probe(access, body.code, caller.dryRun);
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
    return answerWith(documentOf(row));
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
    return answerWith(documentOf(written));
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
    return answerWith(documentOf(written));
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

// The domains of regions on Kubernetes, whose services are behind a TLS gateway.

/** The ports of the services of a region. @throws ApiError INVALID_REQUEST */
export function portsOf({ domain, host, ...ports }: AddRegionBody) {
  const { first_port = NODE_PORTS.first, last_port = NODE_PORTS.last } = ports;
  if (first_port > last_port)
    throw new ApiError('INVALID_REQUEST', `last_port: found ${last_port}, below ${first_port}`);
  if (domain === undefined) return { first_port, last_port };
  const more = host ?? ports.first_port ?? ports.last_port;
  if (more !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `domain: its services are at port ${GATEWAY_PORT} of names in it; ` +
        'leave out host, first_port and last_port, or the domain',
    );
  return { first_port: GATEWAY_PORT, last_port: GATEWAY_PORT };
}

/**
 * Refuses a domain that another region has a part of: a name has one gateway, and a record of DNS
 * covers all names in a domain. A cluster has one gateway, for one region.
 *
 * @param server the address of the cluster
 * @throws ApiError CONFLICT
 */
export function refuseDomain(
  rows: readonly KubernetesRegionRow[],
  { domain, server }: Readonly<{ domain: string; server: string }>,
): void {
  const other = rows.find(
    ({ domain: taken }) =>
      taken !== null && (`.${domain}`.endsWith(`.${taken}`) || taken.endsWith(`.${domain}`)),
  );
  if (other !== undefined) {
    const { code, domain: taken } = other;
    throw new ApiError(
      'CONFLICT',
      `domain: the region ${code} has ${taken}` +
        `${taken === domain ? '' : ', and one is within the other'}; choose another domain`,
    );
  }
  const same = rows.find((row) => row.domain !== null && row.server === server);
  if (same !== undefined)
    throw new ApiError(
      'CONFLICT',
      `domain: the region ${same.code} has the TLS gateway of the cluster, with ${same.domain}; ` +
        'use another cluster, or host in place of the domain',
    );
}

/** @param code of the region whose routes are in the cluster */
export const gatewayTaken = (code: string): string =>
  `domain: the namespace howdah-gateway of the cluster has routes of the region ${code}, of this ` +
  'or another installation; use another cluster, use host in place of the domain, or, if that ' +
  'region is gone, remove what kubectl --namespace howdah-gateway get services --selector ' +
  'app.kubernetes.io/managed-by=howdah lists';

// The images of a region on Kubernetes, and which of them may be set.

/** By major version of PostgreSQL. */
type Images = Readonly<{
  images: Readonly<Record<string, string>>;
  /** Those of each image beside the contributed modules. */
  extensions: Readonly<Record<string, readonly AddonExtension[]>>;
}>;

const MAJORS = [18, 17, 16] as const;
/** The images of CloudNativePG's project. */
const IMAGES = Object.fromEntries(
  MAJORS.map((major) => [major, `ghcr.io/cloudnative-pg/postgresql:${major}-standard-trixie`]),
);
/** The images have these beside the contributed modules. */
const EXTENSIONS = Object.fromEntries(
  MAJORS.map((major): [number, AddonExtension[]] => [major, ['vector']]),
);

/** The image of PgBouncer by the same project. */
export const POOLER_IMAGE = 'ghcr.io/cloudnative-pg/pgbouncer:1.25.1';

/** The images of a region and their extensions. @throws ApiError INVALID_REQUEST */
export function imagesOf({
  images = IMAGES,
  extensions = images === IMAGES ? EXTENSIONS : {},
}: Pick<AddRegionBody, 'images' | 'extensions'>): Images {
  const without = Object.keys(extensions).find((major) => images[major] === undefined);
  if (without !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `extensions: PostgreSQL ${without} has no image; name it in images, or leave it out`,
    );
  for (const [major, image] of Object.entries(images))
    if (majorOfImage(image) !== Number(major))
      throw new ApiError(
        'INVALID_REQUEST',
        `images: the tag of the image of PostgreSQL ${major} must begin with ${major}, as in ` +
          `pg:${major}.2; found ${image.slice(0, 100)}. CloudNativePG takes the version from the ` +
          'tag, and would convert the data of services to another one',
      );
  return { images, extensions };
}

/** @throws ApiError CONFLICT where an image or an extension is missing that services need */
export function refuseNeeded(
  code: string,
  { images, extensions }: Images,
  { major, addons }: Readonly<{ major: number; addons: readonly Addon[] }>,
): void {
  const needed = `the region ${code} has services, or deleted ones that can be restored, of`;
  if (images[major] === undefined)
    throw new ApiError('CONFLICT', `images: ${needed} PostgreSQL ${major}; name its image`);
  const had = extensions[major] ?? [];
  const missing = extensionsOf(addons).find((extension) => !had.includes(extension));
  if (missing !== undefined)
    throw new ApiError(
      'CONFLICT',
      `extensions: ${needed} PostgreSQL ${major} with ${missing}; name an image that has it`,
    );
}

// The parts of a placement that are refused, and the credentials of registries. Pure.

/** A config.json of docker or podman, as far as Kubernetes uses it. */
const CONFIG = Type.Object({
  auths: Type.Record(
    Type.String({ minLength: 1, maxLength: 253 }),
    Type.Object({
      auth: Type.Optional(Type.String()),
      username: Type.Optional(Type.String()),
      password: Type.Optional(Type.String()),
    }),
    { minProperties: 1, maxProperties: 64 },
  ),
});

/** Credentials of registries as they are kept. */
export type Registries = Readonly<{
  image_pull_sealed: Buffer | null;
  /** As JSON: the names of the registries. */
  image_pull_registries: string;
}>;

/** @param config null: there are none @throws ApiError INVALID_REQUEST */
export function sealedRegistries(sealer: Sealer, config: string | null): Registries {
  if (config === null) return { image_pull_sealed: null, image_pull_registries: '[]' };
  return {
    image_pull_sealed: sealer.seal(config),
    image_pull_registries: JSON.stringify(registriesIn(config)),
  };
}

/** The registries of a config.json, in order. @throws ApiError INVALID_REQUEST */
export function registriesIn(config: string): string[] {
  const parsed = parse(config);
  if (!Value.Check(CONFIG, parsed))
    throw new ApiError(
      'INVALID_REQUEST',
      'image_pull_secret: expected the config.json of docker or podman, with the credentials of ' +
        'a registry in it: {"auths":{"HOST":{"auth":"…"}}}',
    );
  const empty = Object.entries(parsed.auths).find(
    ([, { auth, username, password }]) =>
      (auth ?? '') === '' && ((username ?? '') === '' || (password ?? '') === ''),
  );
  if (empty !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `image_pull_secret: it has no credentials of ${empty[0]}, which a credential helper may ` +
        'keep: log in with REGISTRY_AUTH_FILE=pull.json podman login, and send that file',
    );
  return Object.keys(parsed.auths).toSorted();
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @throws ApiError INVALID_REQUEST for two rules of one label, of which Kubernetes refuses one */
export function refusePlacement({ topology_spread: spread = [] }: Placement): void {
  const keys = spread.map(({ topology_key: key }) => key);
  const twice = keys.find((key, at) => keys.indexOf(key) !== at);
  if (twice !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `placement.topology_spread: two rules have the key ${twice}; leave one of them out`,
    );
}
