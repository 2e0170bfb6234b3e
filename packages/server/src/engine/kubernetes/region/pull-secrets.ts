/** Keeps the credentials of registries in the namespaces of a region as they are set. */
import type { Round, Rounds } from '../../../lib/rounds.ts';
import { KINDS } from '../api/kinds.ts';
import { LABELS } from '../names.ts';
import { pullSecret } from './settings.ts';
import type { Region } from './region.ts';
import { listPlaces, writePullSecret } from '../cluster/objects.ts';

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
