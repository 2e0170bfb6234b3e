/** Takes the backups of a service that somebody has asked for, and waits for them. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunStep } from '../run-step.ts';
import { KINDS } from './api/kinds.ts';
import { backupName, baseBackupName } from './manifests/names.ts';
import { baseBackupManifest } from './manifests/object-store.ts';
import { backupManifest } from './manifests/snapshots.ts';
import type { Manifest } from './api/client.ts';
import type { Region } from './region.ts';
import { isEnded } from './service/backup-state.ts';
import { placesIn } from './service/objects.ts';
import { nameOf } from './storage-classes.ts';

const POLL_MS = 500;

/**
 * Takes a snapshot and a base backup, as far as the service has them.
 *
 * @throws what `signal` was aborted with; Error when one fails, or there is none to take
 */
export async function backUpNow(
  region: Region,
  id: string,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<void> {
  const { cache, settings, snapshotClass } = region;
  const cluster = cache.cluster(id);
  if (cluster === null || cluster.projectId === null)
    throw new Error('it has no Cluster, so there is nothing to back up');
  const { projectId, uid, desired } = cluster;
  if (desired?.running !== true)
    throw new Error('it is PAUSED, and CloudNativePG backs up servers that run: start it first');
  const className = nameOf(snapshotClass());
  const takesSnapshot = className !== null && desired.snapshotClass === className;
  if (!takesSnapshot && desired.archives !== true)
    throw new Error(
      'it has no snapshots and no archive: a service that runs since before its region got an ' +
        'object store has them after a restart (howdah service restart)',
    );
  const names = { id, projectId, region: settings.code, clusterUid: uid };
  if (takesSnapshot) {
    const name = backupName(id, Date.now());
    await runStep('take snapshot', () => take(region, backupManifest({ ...names, name }), signal));
  }
  if (desired.archives === true) {
    const name = baseBackupName(id, Date.now());
    const manifest = baseBackupManifest({ ...names, name });
    await runStep('take base backup', () => take(region, manifest, signal));
  }

  async function take(of: Region, manifest: Manifest, ends: AbortSignal): Promise<string> {
    const { name } = manifest.metadata;
    of.cache.putBackup(await of.kube.apply(placesIn(projectId)(KINDS.backup, name), manifest));
    for (;;) {
      ends.throwIfAborted();
      const found = of.cache.backups(id).find((one) => one.name === name);
      if (found === undefined) throw new Error(`its Backup ${name} was removed meanwhile`);
      if (found.problem !== null) throw new Error(found.problem);
      if (isEnded(found)) return name;
      await sleep(POLL_MS, undefined, { signal: ends });
    }
  }
}
