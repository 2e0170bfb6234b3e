/** Writes the objects of a read replica set. Each call can be repeated. */
import { loadedExtensions, loadedLibraries } from '../../../domain/postgres/extensions-of.ts';
import { serverSettings } from '../../../domain/postgres/settings.ts';
import { settingsOfPurpose } from '../../../domain/replica-set/purpose.ts';
import { EngineUnavailable } from '../../engine.ts';
import { KINDS } from '../api/kinds.ts';
import { CLUSTER_LABEL, setName } from '../manifests/names.ts';
import { NETWORKS_SETTING, networksVersion } from '../manifests/networks.ts';
import { clusterParameters, keptWal, RETRY } from '../manifests/parameters.ts';
import { setManifest } from '../manifests/set.ts';
import type { Region } from '../region.ts';
import { restartMarkOf, writeDesired } from './desired.ts';
import { asSettings } from './limits.ts';
import { ensureCertificate, imageFor, listPlaces, placeOf, type ManifestOf } from './objects.ts';

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
export const setManifestOf: ManifestOf = (region, spec, desired) => {
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
