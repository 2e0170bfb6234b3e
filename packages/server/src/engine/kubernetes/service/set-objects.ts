/** Writes the objects of a read replica set. Each call can be repeated. */
import { loadedExtensions, loadedLibraries } from '../../../domain/postgres/extensions-of.ts';
import { serverSettings } from '../../../domain/postgres/settings.ts';
import { EngineUnavailable } from '../../engine.ts';
import type { ServiceSpec } from '../../spec.ts';
import { KINDS } from '../api/kinds.ts';
import { CLUSTER_LABEL, setName } from '../manifests/names.ts';
import { NETWORKS_SETTING, networksVersion } from '../manifests/networks.ts';
import { clusterParameters, keptWal } from '../manifests/parameters.ts';
import { setManifest } from '../manifests/set.ts';
import type { Region } from '../region.ts';
import { restartMarkOf, writeDesired, type Desired } from './desired.ts';
import { asSettings } from './limits.ts';
import { ensureCertificate, imageFor, listPlaces, placesIn } from './objects.ts';

/** @throws EngineUnavailable while volumes of before are being deleted */
export async function writeSet(
  region: Region,
  spec: ServiceSpec & { readonly projectId: string },
  desired: Desired,
): Promise<void> {
  const { kube, cache, settings, readLagLimit } = region;
  const { id, projectId, size } = spec;
  const { major, set, storageGb } = desired;
  if (set === undefined || major === null)
    throw new Error(`no service or no major version is recorded for the set ${id}`);
  const name = setName(id);
  if (cache.cluster(id) === null) await refuseOldVolumes(region, name);
  await ensureCertificate(region, { name, id, projectId });
  const networks = desired.networks ?? null;
  const isPooled = desired.pooled === true;
  const server = serverSettings({ size, major, extensions: loadedExtensions(spec), storageGb });
  const manifest = setManifest({
    id,
    projectId,
    region: settings,
    image: imageFor(region, id, major, desired),
    size,
    storageGb,
    running: desired.running,
    nodePort: spec.endpoint.port,
    parameters: {
      ...clusterParameters(server),
      ...asSettings(set.limits),
      wal_keep_size: keptWal(storageGb),
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
  cache.put(await kube.apply(placesIn(projectId)(KINDS.cluster, name), manifest));
}

/** A new Cluster would take over the volumes that one of its name had. */
async function refuseOldVolumes({ kube }: Region, name: string): Promise<void> {
  const volumes = await listPlaces(kube, KINDS.claim, { [CLUSTER_LABEL]: name });
  for (const volume of volumes) await kube.remove(volume);
  if (volumes.length > 0) throw new EngineUnavailable('its volumes of before are being deleted');
}
