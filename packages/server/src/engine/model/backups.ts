/** Snapshots of model services, and the points in time that they can be forked at. */
import type { Verification } from '@howdah/contract';
import type { BackupKeeping, LocalBackups } from '../engine.ts';
import { secondsBetween, verifiedOf, type Verified } from '../restored-backup.ts';
import type { RunStep } from '../run-step.ts';
import { snapshotId } from './decide-server.ts';
import { countTransition, type Model } from './model.ts';
import { archiveBytesOf, storageBytesOf } from './observe.ts';
import { between } from './random.ts';
import type { SimulatedTransition } from '@howdah/contract';
import { asError } from '@howdah/contract/thrown';
import { delayOf, failureOf } from './script.ts';
import { primaryOf, rowsAt, type ModelService, type ModelSnapshot } from './state.ts';
import { VERIFY_STEPS } from './steps.ts';

const DAY_MS = 86_400_000;
const iso = (ms: number): string => new Date(ms).toISOString();

export function createBackups(model: Model, open: () => Promise<void>): BackupKeeping {
  return {
    describe: async (id) => {
      await open();
      return describe(model, id);
    },
    restorable: async (id) => {
      await open();
      const latest = describe(model, id).window.latest;
      if (latest === null) return null;
      return { repository: null, latestMs: Date.parse(latest), seconds: null, isLost: false };
    },
    keep: async (id, { removes }) => {
      await open();
      return model.inTurn(`backups of ${id}`, () => keep(model, id, removes));
    },
    verify: async ({ id }, runStep, signal) => {
      await open();
      return model.inTurn('verification', () => verify(model, id, runStep, signal));
    },
    backUp: null,
  };
}

function describe(model: Model, id: string): LocalBackups {
  const { state, clock, policy } = model;
  const service = state.find(id);
  const snapshots = service?.snapshots ?? [];
  const earliestMs = snapshots.at(-1)?.takenMs ?? null;
  const endMs = service?.stoppedMs ?? clock.nowMs();
  const last = snapshots
    .flatMap(({ verification }) => (verification === null ? [] : [verification]))
    .toSorted((a, b) => Date.parse(b.at) - Date.parse(a.at))[0];
  return {
    window: {
      earliest: earliestMs === null ? null : iso(earliestMs),
      latest: earliestMs === null ? null : iso(Math.max(earliestMs, endMs)),
      days: policy.windowMs / DAY_MS,
    },
    snapshots: snapshots.map(({ id: snapshot, takenMs, kind, verification }) => ({
      id: snapshot,
      taken: iso(takenMs),
      kind,
      storage_mb:
        service === null || kind === 'initial'
          ? 0
          : Math.ceil(storageBytesOf(model, service) / 1e6),
      ...(verification === null ? {} : { verification }),
    })),
    archive_mb: service === null ? 0 : Math.ceil(archiveBytesOf(model, service) / 1e6),
    ...(last === undefined ? {} : { last_verification: last }),
    problem: service?.snapshotProblem ?? null,
  };
}

/** Takes a due snapshot, and removes what the window does not need. @returns whether one failed */
async function keep(model: Model, id: string, removes: boolean): Promise<boolean> {
  const { state, clock, policy } = model;
  const service = state.find(id);
  if (service === null || primaryOf(service)?.runs !== true) return false;
  if (isDue(service, clock.nowMs(), policy.snapshotEveryMs)) {
    const problem = await failureNow(model, id, 'snapshot');
    await state.change(id, (changed) => {
      changed.snapshotProblem = problem;
      if (problem === null) changed.snapshots.unshift(snapshotOf(changed, clock.nowMs()));
    });
  }
  if (removes && state.forksOf(id).length === 0) {
    const oldestMs = clock.nowMs() - policy.windowMs;
    await state.change(id, ({ snapshots }) => {
      // The newest that is older than the window begins it.
      const first = snapshots.findIndex(({ takenMs }) => takenMs <= oldestMs);
      if (first !== -1) snapshots.splice(first + 1);
    });
  }
  return state.find(id)?.snapshotProblem !== null;
}

function isDue(service: ModelService, nowMs: number, everyMs: number): boolean {
  const [newest] = service.snapshots;
  if (newest === undefined) return true;
  return nowMs - newest.takenMs >= everyMs && rowsAt(service, nowMs) > newest.rows;
}

function snapshotOf(service: ModelService, nowMs: number): ModelSnapshot {
  const rows = rowsAt(service, nowMs);
  return { id: snapshotId(nowMs), kind: 'scheduled', takenMs: nowMs, rows, verification: null };
}

/** A check of a backup that fails because of the script. */
class CheckFailed extends Error {}

/** Why a transition that is no step of an operation fails now; null: it does not. */
async function failureNow(
  model: Model,
  id: string,
  transition: SimulatedTransition,
): Promise<string | null> {
  const number = await countTransition(model, transition);
  return failureOf(model.script, { transition, serviceId: id, number, failed: 0 });
}

async function verify(
  model: Model,
  id: string,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<Verified> {
  const { state, clock, seed, script } = model;
  signal.throwIfAborted();
  const snapshot = state.find(id)?.snapshots[0];
  if (snapshot === undefined)
    throw new Error(
      'it has no snapshot yet: its first one is taken within a minute of its creation',
    );
  const number = await countTransition(model, 'verifyBackup');
  const attempt = { transition: 'verifyBackup', serviceId: id, number, failed: 0 } as const;
  const problem = failureOf(script, attempt);
  const begunMs = clock.nowMs();
  const endMs = begunMs + delayOf(script, seed, attempt);
  const checks: Verification['checks'] = [];
  for (const name of VERIFY_STEPS) {
    // The first step waits for the delay, the last one fails.
    const isLast = name === VERIFY_STEPS.at(-1);
    const why = isLast ? problem : null;
    const check = async (): Promise<string> => {
      signal.throwIfAborted();
      await reachTime(model, endMs, signal);
      checks.push({ name, succeeded: why === null, detail: why ?? 'simulated' });
      if (why !== null) throw new CheckFailed(why);
      return 'simulated';
    };
    await runStep(name, check).catch((error: unknown) => {
      if (!(error instanceof CheckFailed)) throw error;
    });
  }
  signal.throwIfAborted();
  const verification: Verification = {
    at: iso(clock.nowMs()),
    succeeded: problem === null,
    recovery_seconds: between([2, 40], seed, 'recovery', id, snapshot.takenMs) / 10,
    recovery_point: iso(snapshot.takenMs),
    checks,
    ...(problem === null ? {} : { problem }),
  };
  await state.change(id, ({ snapshots }) => {
    const verified = snapshots.find((one) => one.id === snapshot.id);
    if (verified !== undefined) verified.verification = verification;
  });
  return verifiedOf(verification, {
    backup: {
      place: 'snapshot',
      repository: null,
      label: snapshot.id,
      taken: iso(snapshot.takenMs),
    },
    began: iso(begunMs),
    postgresql_version: null,
    rpo_seconds: secondsBetween(snapshot.takenMs, begunMs),
    contents: null,
    pages: null,
  });
}

/** Waits until the clock has reached a time. @throws what the signal was aborted with */
function reachTime({ clock }: Model, atMs: number, signal: AbortSignal): Promise<void> {
  if (clock.nowMs() >= atMs) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const removeAlarm = clock.alarmAt(atMs, async () => {
      signal.removeEventListener('abort', abort);
      resolve();
    });
    const abort = (): void => {
      removeAlarm();
      reject(asError(signal.reason));
    };
    signal.addEventListener('abort', abort, { once: true });
  });
}
