/**
 * Verifies backups: a pod of its own has a volume that is made of the newest snapshot of a service,
 * recovers and examines it. The service is not affected. One by one, as the control plane asks.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Verification } from '@howdah/contract';
import { Type } from 'typebox';
import { loadedLibraries } from '../../domain/postgres/extensions-of.ts';
import type { RunStep } from '../run-step.ts';
import type { ServiceSpec } from '../spec.ts';
import { KubeError } from './api/errors.ts';
import { KINDS, pathOf, type Place } from './api/kinds.ts';
import { VERIFICATION, verificationPod } from './manifests/names.ts';
import { VERIFICATION_CONTAINER, verificationManifest } from './manifests/verification.ts';
import type { Region } from './region.ts';
import type { BackupState } from './service/backup-state.ts';
import { placesIn } from './service/objects.ts';
import type { ClusterState } from './service/observed.ts';
import { POD_STEPS, resultIn, type PodStep, type StepResult } from './service/verification.ts';

const POLL_MS = 500;
/** A cluster that is full for so long has no room for it today. */
const START_WITHIN_MS = 600_000;
/** Its volume goes with it. */
const END_WITHIN_MS = 60_000;
/** It prints a line for each step. */
const OUTPUT_BYTES = 64 * 1024;

/** The check that failed. Its result is recorded. */
class Failed extends Error {}

/** @throws what `signal` was aborted with; Error when there is no snapshot, or no room for it */
export async function verifySnapshot(
  region: Region,
  spec: ServiceSpec,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<Verification> {
  const { cache, kube } = region;
  const cluster = cache.cluster(spec.id);
  const backup = cache.backups(spec.id).find(({ snapshot }) => snapshot !== null);
  if (cluster === null || cluster.projectId === null || backup?.snapshot == null)
    throw new Error('it has no snapshot yet: its first one is taken soon after its creation');
  const place = placesIn(cluster.projectId)(KINDS.pod, verificationPod(spec.id));
  // A control plane that was killed has left it.
  await removePod(region, place, spec.id);
  try {
    const verification = await check(region, spec, { cluster, backup, place }, runStep, signal);
    const at = { kind: KINDS.backup, namespace: backup.namespace, name: backup.name };
    const annotations = { [VERIFICATION]: JSON.stringify(verification) };
    cache.putBackup(await kube.merge(at, { metadata: { annotations } }));
    return verification;
  } finally {
    await removePod(region, place, spec.id);
  }
}

type Verified = Readonly<{ cluster: ClusterState; backup: BackupState; place: Place }>;

async function check(
  region: Region,
  spec: ServiceSpec,
  verified: Verified,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<Verification> {
  const begunMs = Date.now();
  const checks: Verification['checks'] = [];
  const takenAt = new Date(verified.backup.askedMs).toISOString();
  let seconds: number | null = null;
  try {
    for (const [step, name] of POD_STEPS)
      await runStep(name, async () => {
        signal.throwIfAborted();
        if (step === 'restore') await createPod(region, spec, verified);
        const found = await untilEnd(region, spec.id, verified.place, step, signal);
        if (step === 'replay' && found.state === 'ok') seconds = (Date.now() - begunMs) / 1000;
        const detail = step === 'restore' ? `that of ${takenAt}: ${found.detail}` : found.detail;
        checks.push({ name, succeeded: found.state === 'ok', detail });
        if (found.state === 'failed') throw new Failed(found.detail);
        return detail;
      });
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
  }
  const failed = checks.find(({ succeeded }) => !succeeded);
  return {
    at: new Date().toISOString(),
    succeeded: failed === undefined,
    recovery_seconds: seconds,
    // It is taken after it was asked for.
    recovery_point: seconds === null ? null : takenAt,
    checks,
    ...(failed === undefined ? {} : { problem: `${failed.name}: ${failed.detail}` }),
  };
}

async function createPod(
  { kube, settings }: Region,
  spec: ServiceSpec,
  { cluster, backup, place }: Verified,
): Promise<void> {
  const { desired, projectId, uid } = cluster;
  const major = desired?.major ?? spec.major;
  const image = cluster.image ?? (major === null ? null : settings.images[major]);
  if (major == null || image == null || projectId === null || backup.snapshot === null)
    throw new Error('its version of PostgreSQL is not known yet: try it again in a minute');
  const manifest = verificationManifest({
    id: spec.id,
    projectId,
    region: settings.code,
    clusterUid: uid,
    image,
    major,
    preload: desired?.preload ?? loadedLibraries(spec),
    snapshot: backup.snapshot,
    storageGb: desired?.storageGb ?? spec.storageGb,
    storageClass: settings.storageClass,
  });
  await kube.create({ ...place, name: null }, manifest, Type.Unknown());
}

/**
 * Waits until a step has ended.
 *
 * @throws what `signal` was aborted with; Error when the backup could not be examined
 */
async function untilEnd(
  region: Region,
  id: string,
  place: Place,
  step: PodStep,
  signal: AbortSignal,
): Promise<StepResult> {
  const begunMs = Date.now();
  for (let wasThere = false; ; await sleep(POLL_MS)) {
    signal.throwIfAborted();
    // Before its output, which is complete then.
    const pod = region.cache.verification(id);
    if (wasThere && pod === null)
      throw new Error('somebody has removed the pod that verifies it: verify it again');
    wasThere ||= pod !== null;
    const found =
      pod === null || pod.phase === 'Pending' ? null : await readStep(region, place, step);
    if (found?.state === 'error') throw new Error(`it cannot be verified: ${found.detail}`);
    if (found !== null) return found;
    const why = pod?.obstacle ?? null;
    if (pod?.phase === 'Succeeded' || pod?.phase === 'Failed')
      throw new Error(
        `the pod that verifies it has ended too early: ${why ?? 'it does not say why'}; ` +
          'verify it again',
      );
    if (pod?.phase !== 'Running' && Date.now() - begunMs > START_WITHIN_MS)
      throw new Error(
        `the pod that verifies it does not start: ${why ?? 'it has no node yet'}; verify it ` +
          'again once the cluster has room for it',
      );
  }
}

async function readStep({ kube }: Region, place: Place, step: PodStep): Promise<StepResult | null> {
  const query = new URLSearchParams({
    container: VERIFICATION_CONTAINER,
    limitBytes: String(OUTPUT_BYTES),
  });
  const text = await kube
    .text(`${pathOf(place, 'log')}?${query.toString()}`)
    .catch((error: unknown) => {
      // The pod has just been removed, which is seen next.
      if (error instanceof KubeError && error.status === 404) return '';
      throw error;
    });
  return resultIn(text, step);
}

/** Removes the pod, and waits for its end a while. */
export async function removePod({ kube, cache }: Region, place: Place, id: string): Promise<void> {
  if (!(await kube.remove(place, 0))) return;
  const begunMs = Date.now();
  while (cache.verification(id) !== null && Date.now() - begunMs < END_WITHIN_MS)
    await sleep(POLL_MS);
}
