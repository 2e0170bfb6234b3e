/** Writes and removes the objects of a service. Each call can be repeated. */
import { Type } from 'typebox';
import { adminRights, OPEN_MAINTENANCE } from '../../../domain/postgres/admin-role.ts';
import {
  extensionsOf,
  loadedExtensions,
  loadedLibraries,
} from '../../../domain/postgres/extension-rules.ts';
import { serverSettings } from '../../../domain/postgres/settings.ts';
import { newPassword } from '../../../lib/ids.ts';
import { issueServerCertificate } from '../../../lib/tls.ts';
import type { ServiceSpec } from '../../spec.ts';
import { REVOKE_WRITERS } from '../../statements/session.ts';
import type { Kube, Manifest } from '../api/client.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS, type Kind, type Place } from '../api/kinds.ts';
import { clusterManifest } from './manifest.ts';
import { type RegionSettings, pullSecret, pullSecretManifest } from '../region/settings.ts';
import {
  AUTHORITY_SECRET,
  BACKUP_LABEL,
  certificateSecret,
  CLUSTER_LABEL,
  clusterName,
  controlSecret,
  idOfSnapshot,
  innerHosts,
  isInOurNamespace,
  LABELS,
  namespaceOf,
  originBackup,
  passwordSecret,
  poolerName,
  readerSecret,
  setName,
} from '../names.ts';
import { NETWORKS_SETTING, networksVersion } from '../network/rules.ts';
import { ARCHIVE_TIMEOUT } from '../backup/manifests.ts';
import { clusterParameters, keptWal, RETRY, asSettings, limitsOfAnySize } from './parameters.ts';
import { publicEndpoint } from '../network/routes.ts';
import {
  authorityManifest,
  certificateManifest,
  controlManifest,
  namespaceManifest,
  passwordManifest,
  poolerSecretManifest,
  readerManifest,
} from './secrets.ts';
import type { Region } from '../region/region.ts';
import { restartWhy } from './cluster-change.ts';
import { restartMarkOf, writeDesired, type Desired } from './desired-state.ts';
import { writeObjectStore } from '../backup/object-store.ts';
import { SNAPSHOT_OBJECT, type SnapshotObject, type ClusterState } from './state.ts';
import { settingsOfPurpose } from '../../../domain/replica-set.ts';
import { EngineUnavailable } from '../../engine.ts';
import { setManifest } from './set.ts';
import { changedFields } from './foreign-fields.ts';

const ANY_OBJECT = Type.Object({
  metadata: Type.Object({ name: Type.String(), namespace: Type.String() }),
});

/**
 * Writes the objects that the operator makes the servers of a service from, beside its Cluster.
 *
 * @param desired the state of the Cluster that is written
 */
export async function writeObjects(
  region: Region,
  spec: ServiceSpec,
  projectId: string,
  desired: Desired,
): Promise<void> {
  const { kube, authority } = region;
  const place = placesIn(projectId);
  await kube.apply(
    { kind: KINDS.namespace, namespace: null, name: namespaceOf(projectId) },
    namespaceManifest(projectId),
  );
  await kube.apply(
    place(KINDS.secret, AUTHORITY_SECRET),
    authorityManifest(projectId, authority.certificatePem),
  );
  await writePullSecret(region, projectId);
  await ensureCertificate(region, { name: clusterName(spec.id), id: spec.id, projectId });
  // Once: another password may be in it by now.
  if (
    spec.firstVerifier !== null &&
    !(await exists(kube, place(KINDS.secret, passwordSecret(spec.id))))
  )
    await writePassword(region, spec.id, projectId, spec.firstVerifier);
  // Once: the roles have these passwords from then on.
  for (const [name, manifestOf] of [
    [readerSecret(spec.id), readerManifest],
    [controlSecret(spec.id), controlManifest],
    [poolerName(clusterName(spec.id)), poolerSecretManifest],
  ] as const)
    if (!(await exists(kube, place(KINDS.secret, name))))
      await kube.apply(place(KINDS.secret, name), manifestOf(spec.id, projectId, newPassword()));
  if (desired.archives === true) await writeObjectStore(region, spec.id, projectId);
}

/** The Cluster of a service in some desired state. */
const serviceManifest: ManifestOf = (region, spec, desired) =>
  clusterManifest(clusterInput(region, spec, spec.projectId, desired));

/** Makes the manifest of a Cluster, be it that of a service or of a read replica set. */
type ManifestOf = (
  region: Region,
  spec: ServiceSpec & { readonly projectId: string },
  desired: Desired,
) => Manifest;

function clusterInput(region: Region, spec: ServiceSpec, projectId: string, desired: Desired) {
  const { major, size, storageGb } = spec;
  const networks = desired.networks ?? null;
  const isPooled = desired.pooled === true;
  if (major === null) throw new Error(`no major version is recorded for the service ${spec.id}`);
  return {
    id: spec.id,
    projectId,
    region: region.settings,
    image: imageFor(region, spec.id, major, desired),
    ...placeOf(desired),
    bound: desired.bound === true,
    size,
    storageGb,
    replicas: desired.replicas,
    sync: desired.sync,
    running: desired.running,
    restartMark: restartMarkOf(desired),
    nodePort: region.settings.domain === null ? spec.endpoint.port : null,
    parameters: {
      ...clusterParameters(
        serverSettings({ size, major, extensions: loadedExtensions(spec), storageGb }),
      ),
      wal_keep_size: keptWal(storageGb),
      ...RETRY,
      ...(desired.targetTime === undefined ? {} : asSettings(limitsOfAnySize(desired))),
      ...(desired.archives === true ? { archive_timeout: ARCHIVE_TIMEOUT } : {}),
      [NETWORKS_SETTING]: networksVersion(networks, isPooled),
    },
    networks,
    isPooled,
    preload: loadedLibraries(spec),
    statements: [...adminRights(), REVOKE_WRITERS, ...OPEN_MAINTENANCE],
    extensions: extensionsOf(spec.addons),
    parent: desired.parent ?? null,
    source: desired.source ?? null,
    snapshot: desired.snapshot ?? null,
    snapshotClass: desired.snapshotClass ?? null,
    archives: desired.archives ?? false,
    targetTime: desired.targetTime ?? null,
    keepsArchive: desired.recovered === true,
    desired: writeDesired(desired),
  };
}

/** The place of a Cluster in the form of its manifest. */
const placeOf = ({ placement, pulls, walClass }: Desired) => ({
  placement: placement ?? {},
  pulls: pulls === true,
  walClass: walClass ?? null,
});

/** Writes the credentials of registries that pods of a project may need. */
export async function writePullSecret(
  { kube, settings: { code, imagePull } }: Pick<Region, 'kube' | 'settings'>,
  projectId: string,
): Promise<void> {
  // Unreadable: what is there stays.
  if (imagePull?.config == null) return;
  await kube.apply(
    placesIn(projectId)(KINDS.secret, pullSecret(code)),
    pullSecretManifest(code, projectId, imagePull.config),
  );
}

/**
 * The image of the servers of a Cluster. A newer one of the region begins with a start that is due
 * anyway.
 */
function imageFor(
  { settings: { code, images }, cache }: Region,
  id: string,
  major: number,
  desired: Desired,
): string {
  const cluster = cache.cluster(id);
  if (cluster !== null && cluster.image !== null && goesOn(cluster.desired, desired))
    return cluster.image;
  // The data of a copied cluster may need a library that only that image has.
  const copied = cache.cluster(desired.parent ?? desired.set?.parent ?? '');
  if (cluster === null && copied !== null && copied.image !== null) return copied.image;
  const image = images[major];
  if (image === undefined) throw new Error(`region ${code} has no image of PostgreSQL ${major}`);
  return image;
}

/** Whether no server is started by a change. @param before null: somebody has changed it */
const goesOn = (before: Desired | null, desired: Desired): boolean =>
  before === null || !desired.running || (before.running && restartWhy(before, desired) === null);

/** A Cluster by its name, with the service or read replica set that it is of. */
type Named = Readonly<{ name: string; id: string; projectId: string }>;

/** Issues a certificate once: `renewCertificates` renews it. */
async function ensureCertificate(region: Region, named: Named): Promise<void> {
  const { name, projectId } = named;
  if (!(await exists(region.kube, placesIn(projectId)(KINDS.secret, certificateSecret(name)))))
    await writeCertificate(region, named);
}

/** Issues a certificate for the servers of a Cluster. */
export async function writeCertificate(
  { kube, authority, settings }: Region,
  { name, id, projectId }: Named,
): Promise<void> {
  const certificate = await issueServerCertificate(
    authority,
    hostsOf(settings, { name, id, projectId }),
  );
  await kube.apply(
    placesIn(projectId)(KINDS.secret, certificateSecret(name)),
    certificateManifest(name, id, projectId, certificate),
  );
}

/** The names that the certificate of a Cluster has. Its pooler has the same certificate. */
export const hostsOf = (
  { host, domain }: Pick<RegionSettings, 'host' | 'domain'>,
  { name, id, projectId }: Named,
): string[] => [
  ...(domain === null
    ? [host]
    : [publicEndpoint(domain, id, 'servers').host, publicEndpoint(domain, id, 'pooler').host]),
  ...innerHosts(name, projectId),
];

export async function writePassword(
  { kube }: Region,
  id: string,
  projectId: string,
  verifier: string,
): Promise<void> {
  await kube.apply(
    placesIn(projectId)(KINDS.secret, passwordSecret(id)),
    passwordManifest(id, projectId, verifier),
  );
}

export const placesIn =
  (projectId: string) =>
  (kind: Kind, name: string): Place => ({ kind, namespace: namespaceOf(projectId), name });

const exists = async (kube: Kube, place: Place): Promise<boolean> =>
  (await kube.get(place, ANY_OBJECT)) !== null;

/** The snapshots of volumes that belong to a service, in whichever namespace they are. */
async function listSnapshots(kube: Kube, id: string): Promise<SnapshotObject[]> {
  const listed = await Promise.all(
    // Those of backups have the labels of the volume, which may be that of another service.
    [{ [LABELS.service]: id }, { [BACKUP_LABEL]: originBackup(id) }].map((labels) =>
      listLabeledSnapshots(kube, labels),
    ),
  );
  return listed
    .flat()
    .filter(
      ({ metadata: { namespace, name } }) =>
        isInOurNamespace({ namespace }) && (idOfSnapshot(name) ?? id) === id,
    );
}

export async function listLabeledSnapshots(
  kube: Kube,
  labels: Readonly<Record<string, string>>,
): Promise<SnapshotObject[]> {
  const all = { kind: KINDS.snapshot, namespace: null, name: null };
  return (await kube.list(all, SNAPSHOT_OBJECT, labels).catch(noneIfMissing)).items;
}

/** A cluster without such resources has none; without the right to list them, none was made. */
function noneIfMissing(error: unknown): { items: never[] } {
  if (error instanceof KubeError && (error.status === 404 || error.status === 403))
    return { items: [] };
  throw error;
}

/**
 * All that a service or a set may leave beside its Cluster, in whichever namespace it is.
 *
 * @param name of the Cluster
 */
export async function findLeftovers({ kube }: Region, id: string, name: string): Promise<Place[]> {
  const listed = await Promise.all([
    listPlaces(kube, KINDS.secret, { [LABELS.service]: id }),
    // The port of a Service is free for another service when it is gone.
    listPlaces(kube, KINDS.service, { [LABELS.service]: id }),
    listPlaces(kube, KINDS.claim, { [CLUSTER_LABEL]: name }),
    listPlaces(kube, KINDS.backup, { [LABELS.service]: id }),
    listSnapshots(kube, id).then((snapshots) => placesOf(KINDS.snapshot, snapshots)),
  ]);
  return listed.flat();
}

/** Resources that a cluster may lack, or a user may not list. */
const OPTIONAL: readonly Kind[] = [KINDS.backup, KINDS.objectStore, KINDS.configMap];

/** The objects of a kind with some labels, in our namespaces. */
export async function listPlaces(
  kube: Kube,
  kind: Kind,
  labels: Readonly<Record<string, string>>,
): Promise<Place[]> {
  const listing = kube.list({ kind, namespace: null, name: null }, ANY_OBJECT, labels);
  const { items } = await (OPTIONAL.includes(kind) ? listing.catch(noneIfMissing) : listing);
  return placesOf(kind, items).filter(({ namespace }) => isInOurNamespace({ namespace }));
}

type Listed = Readonly<{ metadata: Readonly<{ name: string; namespace: string }> }>;
const placesOf = (kind: Kind, objects: readonly Listed[]) =>
  objects.map(({ metadata: { namespace, name } }) => ({ kind, namespace, name }));

// Writes the objects of a read replica set. Each call can be repeated.

/**
 * Writes what the servers of a set need beside its Cluster.
 *
 * @throws EngineUnavailable while volumes of before are being deleted
 */
export async function writeSetObjects(region: Region, id: string, projectId: string) {
  const name = setName(id);
  if (region.cache.cluster(id) === null) await refuseOldVolumes(region, name);
  await ensureCertificate(region, { name, id, projectId });
}

/** The Cluster of a set in some desired state. */
const setManifestOf: ManifestOf = (region, spec, desired) => {
  const { settings, readLagLimit } = region;
  const { id, projectId, size } = spec;
  const { major, set, storageGb } = desired;
  if (set === undefined || major === null)
    throw new Error(`no service or no major version is recorded for the set ${id}`);
  const networks = desired.networks ?? null;
  const isPooled = desired.pooled === true;
  const server = serverSettings({ size, major, extensions: loadedExtensions(spec), storageGb });
  return setManifest({
    id,
    projectId,
    region: settings,
    image: imageFor(region, id, major, desired),
    ...placeOf(desired),
    bound: desired.bound === true,
    size,
    storageGb,
    running: desired.running,
    nodePort: settings.domain === null ? spec.endpoint.port : null,
    parameters: {
      ...clusterParameters(server),
      ...asSettings(set.limits),
      ...(set.purpose === undefined ? {} : settingsOfPurpose(set.purpose)),
      wal_keep_size: keptWal(storageGb),
      ...RETRY,
      [NETWORKS_SETTING]: networksVersion(networks, isPooled),
    },
    preload: loadedLibraries(spec),
    networks,
    isPooled,
    restartMark: restartMarkOf(desired),
    desired: writeDesired(desired),
    parent: set.parent,
    nodes: 1 + desired.replicas,
    maximumLagBytes: readLagLimit.bytes,
  });
};

/** A new Cluster would take over the volumes that one of its name had. */
async function refuseOldVolumes({ kube }: Region, name: string): Promise<void> {
  const volumes = await listPlaces(kube, KINDS.claim, { [CLUSTER_LABEL]: name });
  for (const volume of volumes) await kube.remove(volume);
  if (volumes.length > 0) throw new EngineUnavailable('its volumes of before are being deleted');
}

// Writes the Cluster of a service or a set, and finds fields that others have changed since.

type Owned = ServiceSpec & { readonly projectId: string };

const manifestOf = (region: Region, spec: Owned, desired: Desired) =>
  (spec.set === null ? serviceManifest : setManifestOf)(region, spec, desired);

/** @param fields of others: they are `left`, or `taken back` */
export async function writeCluster(
  region: Region,
  spec: Owned,
  desired: Desired,
  fields: 'left' | 'taken back',
): Promise<void> {
  if (fields === 'taken back') region.takenBack.set(spec.id, spec.restarts);
  const name = spec.set === null ? clusterName(spec.id) : setName(spec.id);
  const place = placesIn(spec.projectId)(KINDS.cluster, name);
  const manifest = manifestOf(region, spec, desired);
  const first = withImageOfBefore(region, spec, desired, manifest);
  if (first !== null) await region.kube.apply(place, first, fields);
  region.cache.put(await region.kube.apply(place, manifest, fields));
}

/**
 * The manifest of all else that changes beside the image of a Cluster. CloudNativePG refuses a
 * change of the image that changes parameters too (docs/cloudnativepg.md, fact 44), so the image is
 * written afterwards, at once. A stopped service stays so until then: no server starts with the
 * image of before.
 *
 * @returns null: it is new, or its image does not change
 */
function withImageOfBefore(
  region: Region,
  spec: Owned,
  desired: Desired,
  { spec: wanted }: Manifest,
): Manifest | null {
  const before = region.cache.cluster(spec.id);
  const image = before?.image ?? null;
  if (before === null || image === null || Object(wanted).imageName === image) return null;
  const running = before.desired?.running ?? desired.running;
  const manifest = manifestOf(region, spec, { ...desired, running });
  return { ...manifest, spec: { ...Object(manifest['spec']), imageName: image } };
}

/** The fields that others have set to other values than the last write had, as texts. */
function changesIn(region: Region, spec: Owned, cluster: ClusterState | null): string[] {
  if (cluster === null || cluster.desired === null || cluster.foreign.length === 0) return [];
  return changedFields(cluster.foreign, manifestOf(region, spec, cluster.desired)['spec']);
}

/**
 * Those that a restart takes back. It does so once: another program may set them again at once, and
 * two programs must not go on against each other.
 */
export const changesToTakeBack = (region: Region, spec: Owned, cluster: ClusterState | null) =>
  region.takenBack.get(spec.id) === spec.restarts ? [] : changesIn(region, spec, cluster);

/** Has the service warn of them, or warn no more. */
export function noteChanges(region: Region, spec: Owned, cluster: ClusterState | null): void {
  const changes = changesIn(region, spec, cluster);
  if (changes.length > 0) region.changedByOthers.set(spec.id, changes);
  else region.changedByOthers.delete(spec.id);
}
