/**
 * Verifies backups: a pod of its own examines a volume that is made of the newest snapshot of a
 * service, or that its archive was recovered to. The service is not affected. One by one, as the
 * control plane asks.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Verification } from '@howdah/contract';
import { Type } from 'typebox';
import { loadedLibraries } from '../../../domain/postgres/extension-rules.ts';
import { secondsBetween, verifiedOf, type Verified } from '../../restored-backup.ts';
import type { RunStep } from '../../run-step.ts';
import type { ServiceSpec } from '../../spec.ts';
import { VERIFICATION_STEP } from '../../verification-steps.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS, pathOf, type Place } from '../api/kinds.ts';
import { VERIFICATION, VERIFICATION_BEGUN, verificationPod } from '../names.ts';
import {
  VERIFICATION_CONTAINER,
  contentsIn,
  pagesIn,
  verificationManifest,
  versionIn,
  stepsOf,
  resultIn,
  type PodStep,
  type StepResult,
} from './verification-pod.ts';
import { recoverArchive, recoveredClaim, removeRecovered, STILL_ENDING } from './recovery.ts';
import type { Region } from '../region/region.ts';
import { windowOf } from './archive-state.ts';
import { asSettings, limitsOfAnySize } from '../cluster/parameters.ts';
import { placesIn } from '../cluster/objects.ts';
import type { ClusterState } from '../cluster/state.ts';
import { chooseVerified, type Verifiable } from './verification-choice.ts';

const POLL_MS = 500;
/** A cluster that is full for so long has no room for it today. */
const START_WITHIN_MS = 600_000;
/** The volume of a pod goes with it. */
const END_WITHIN_MS = 60_000;
/** The pod prints a line for each step. */
const OUTPUT_BYTES = 64 * 1024;

/** The check that failed. Its result is recorded. */
class Failed extends Error {}

/** The backup that is verified next; null: there is none yet. */
export function nextVerified(
  { cache, objectStore }: Pick<Region, 'cache' | 'objectStore'>,
  id: string,
): Verifiable | null {
  const store = objectStore();
  const window = windowOf(cache.archive(id), store);
  const archive =
    window === null || store === null
      ? null
      : { latestMs: window.latestMs, sinceMs: store.sinceMs };
  return chooseVerified(cache.backups(id), archive);
}

/** @throws what `signal` was aborted with; Error when there is no backup, or no room for it */
export async function verifyBackup(
  region: Region,
  spec: ServiceSpec,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<Verified> {
  const { cache, kube } = region;
  const cluster = cache.cluster(spec.id);
  const next = nextVerified(region, spec.id);
  if (cluster === null || cluster.projectId === null || next === null)
    throw new Error('it has no backup yet: its first one is taken soon after its creation');
  const { projectId } = cluster;
  const { backup } = next;
  const place = placesIn(projectId)(KINDS.pod, verificationPod(spec.id));
  const at = { kind: KINDS.backup, namespace: backup.namespace, name: backup.name };
  const annotate = async (annotations: Readonly<Record<string, string>>): Promise<void> =>
    cache.putBackup(await kube.merge(at, { metadata: { annotations } }));
  // A control plane that was killed has left it.
  if (!(await removeVerification(region, projectId, spec.id))) throw new Error(STILL_ENDING);
  await annotate({ [VERIFICATION_BEGUN]: new Date().toISOString() });
  try {
    const subject = { ...next, cluster, projectId, place };
    const verified = await check(region, spec, subject, runStep, signal);
    await annotate({ [VERIFICATION]: JSON.stringify(verified.verification) });
    return verified;
  } finally {
    await removeVerification(region, projectId, spec.id);
  }
}

type Subject = Verifiable & Readonly<{ cluster: ClusterState; projectId: string; place: Place }>;

async function check(
  region: Region,
  spec: ServiceSpec,
  subject: Subject,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<Verified> {
  const begunMs = Date.now();
  const checks: Verification['checks'] = [];
  // A snapshot is taken after it was asked for.
  const { backup, toMs } = subject;
  const pointMs = toMs ?? backup.askedMs;
  const point = new Date(pointMs).toISOString();
  const which = toMs === null ? `that of ${point}` : `up to ${point}`;
  let seconds: number | null = null;
  try {
    for (const [step, name] of stepsOf(toMs))
      await runStep(name, async () => {
        signal.throwIfAborted();
        const restored = step === 'restore' ? await restore(region, spec, subject, signal) : null;
        const found = restored ?? (await untilEnd(region, spec.id, subject.place, step, signal));
        if (step === 'replay' && found.state === 'ok') seconds = (Date.now() - begunMs) / 1000;
        const detail = step === 'restore' ? `${which}: ${found.detail}` : found.detail;
        checks.push({ name, succeeded: found.state === 'ok', detail });
        if (found.state === 'failed') throw new Failed(found.detail);
        return detail;
      });
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
  }
  const failed = checks.find(({ succeeded }) => !succeeded);
  const verification: Verification = {
    at: new Date().toISOString(),
    succeeded: failed === undefined,
    recovery_seconds: seconds,
    recovery_point: seconds === null ? null : point,
    checks,
    ...(failed === undefined ? {} : { problem: `${failed.name}: ${failed.detail}` }),
  };
  const detailOf = (step: PodStep): string =>
    checks.find(({ name }) => name === VERIFICATION_STEP[step])?.detail ?? '';
  return verifiedOf(verification, {
    backup: {
      place: toMs === null ? 'snapshot' : 'object store',
      repository: null,
      label: backup.name,
      taken: new Date(backup.takenMs ?? backup.askedMs).toISOString(),
    },
    began: new Date(begunMs).toISOString(),
    postgresql_version: versionIn(detailOf('replay')),
    rpo_seconds: secondsBetween(pointMs, begunMs),
    contents: contentsIn(detailOf('rows')),
    pages: pagesIn(detailOf('pages')),
  });
}

/**
 * Makes the copy, and the pod that examines it.
 *
 * @returns why there is no copy; null: there is one
 */
async function restore(
  region: Region,
  spec: ServiceSpec,
  { cluster, projectId, backup, toMs, place }: Subject,
  signal: AbortSignal,
): Promise<StepResult | null> {
  const { kube, settings } = region;
  const { id } = spec;
  const { desired, uid } = cluster;
  const major = desired?.major ?? spec.major;
  const image = cluster.image ?? (major === null ? null : settings.images[major]);
  if (major == null || image == null)
    throw new Error('its version of PostgreSQL is not known yet: try it again in a minute');
  const preload = desired?.preload ?? loadedLibraries(spec);
  const storageGb = desired?.storageGb ?? spec.storageGb;
  const copy = {
    id,
    projectId,
    region: settings.code,
    clusterUid: uid,
    image,
    major,
    storageGb,
    storageClass: settings.storageClass,
    placement: settings.placementOf(id),
    pulls: settings.imagePull !== null,
  };
  if (toMs !== null) {
    const limits = asSettings(limitsOfAnySize({ size: null, major, preload, storageGb }));
    const targetTime = new Date(toMs).toISOString();
    const failed = await recoverArchive(region, { ...copy, limits, targetTime }, signal);
    if (failed !== null) return failed;
  }
  const volume =
    toMs === null ? { snapshot: backup.snapshot ?? '' } : { claim: recoveredClaim(id) };
  const manifest = verificationManifest({ ...copy, preload, volume });
  await kube.create({ ...place, name: null }, manifest, Type.Unknown());
  return null;
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

/**
 * Removes all that a verification has made, and waits for its end a while.
 *
 * @returns whether all of it is gone
 */
export async function removeVerification(
  region: Region,
  projectId: string,
  id: string,
): Promise<boolean> {
  const { kube, cache } = region;
  await kube.remove(placesIn(projectId)(KINDS.pod, verificationPod(id)), 0);
  const begunMs = Date.now();
  while (cache.verification(id) !== null && Date.now() - begunMs < END_WITHIN_MS)
    await sleep(POLL_MS);
  return (await removeRecovered(region, projectId, id)) && cache.verification(id) === null;
}
