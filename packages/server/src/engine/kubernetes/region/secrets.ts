/** Keeps the secrets of a region: certificates of servers, and the credentials of registries. */
import { Type } from 'typebox';
import type { Round, Rounds } from '../../../lib/rounds.ts';
import { needsRenewal } from '../../../lib/tls.ts';
import { KINDS } from '../api/kinds.ts';
import { LABELS, MANAGED } from '../names.ts';
import type { Region } from './region.ts';
import { hostsOf, writeCertificate, listPlaces, writePullSecret } from '../cluster/objects.ts';
import { pullSecret } from './settings.ts';

const CERTIFICATE = Type.Object({
  metadata: Type.Object({ labels: Type.Record(Type.String(), Type.String()) }),
  data: Type.Object({ 'tls.crt': Type.String() }),
});
const SECRET_TYPE = 'kubernetes.io/tls';

/** @param failed called with the error of an attempt; the next one is made all the same */
export function keepCertificates(
  region: Region,
  rounds: Rounds,
  failed: (error: unknown) => void,
): Round {
  const round = rounds.every('certificates', () => renewCertificates(region).catch(failed));
  round.start();
  return round;
}

/** Renews the certificates of the region that end soon, or have another authority or host. */
export async function renewCertificates(region: Region): Promise<void> {
  const { kube, authority, settings } = region;
  const { items } = await kube.list(
    { kind: KINDS.secret, namespace: null, name: null },
    CERTIFICATE,
    MANAGED,
    `type=${SECRET_TYPE}`,
  );
  for (const { metadata, data } of items) {
    const { [LABELS.service]: id, [LABELS.project]: projectId } = metadata.labels;
    const cluster = id === undefined ? null : region.cache.cluster(id);
    if (id === undefined || projectId === undefined || cluster === null) continue;
    const { name } = cluster;
    const pem = Buffer.from(data['tls.crt'], 'base64').toString('utf8');
    if (needsRenewal(pem, authority, hostsOf(settings, { name, id, projectId })))
      await writeCertificate(region, { name, id, projectId });
  }
}

// The credentials of registries in the namespaces of a region.

type Reach = Pick<Region, 'kube' | 'cache' | 'settings'>;

/** @param failed called with the error of an attempt; the next one is made all the same */
export function keepPullSecrets(
  region: Reach,
  rounds: Rounds,
  failed: (error: unknown) => void,
): Round {
  /** The config in each namespace, as it was last written; null: it was removed. */
  const written = new Map<string, string | null>();
  const round = rounds.every('pullSecrets', () => keepOnce(region, written).catch(failed));
  round.start();
  return round;
}

async function keepOnce(region: Reach, written: Map<string, string | null>): Promise<void> {
  const { cache, settings, kube } = region;
  const { imagePull } = settings;
  if (imagePull === null) {
    if (written.get('') === null) return;
    const secrets = await listPlaces(kube, KINDS.secret, { [LABELS.region]: settings.code });
    for (const secret of secrets)
      if (secret.name === pullSecret(settings.code)) await kube.remove(secret);
    written.clear();
    written.set('', null);
    return;
  }
  written.delete('');
  // Without an answer no namespace is known, and the next round looks again.
  await cache.ready().catch(() => undefined);
  for (const id of cache.ids()) {
    const projectId = cache.cluster(id)?.projectId ?? null;
    if (projectId === null || written.get(projectId) === imagePull.config) continue;
    await writePullSecret(region, projectId);
    written.set(projectId, imagePull.config);
  }
}
