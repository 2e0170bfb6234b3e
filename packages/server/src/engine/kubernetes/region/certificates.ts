/**
 * Renews the certificates of servers. CloudNativePG renews none that it did not make; it loads a
 * renewed one without a restart.
 */
import { Type } from 'typebox';
import type { Round, Rounds } from '../../../lib/rounds.ts';
import { needsRenewal } from '../../../lib/tls.ts';
import { KINDS } from '../api/kinds.ts';
import { LABELS, MANAGED } from '../names.ts';
import type { Region } from './region.ts';
import { hostsOf, writeCertificate } from '../cluster/objects.ts';

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
