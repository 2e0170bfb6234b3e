/** The parts of a model engine that its modules share. */
import type { ClusterRecords } from '../records.ts';
import type { InTurn } from '../../lib/turns.ts';
import type { ServiceSpec } from '../spec.ts';
import type { ModelClock } from './clock.ts';
import type { SimulatedTransition } from '@howdah/contract';
import { delayOf, failureOf, type Attempt, type Script } from './script.ts';
import type { ModelState } from './state.ts';

export type Model = {
  readonly seed: string;
  readonly state: ModelState;
  readonly clock: ModelClock;
  /** The time of the process, in ms since the epoch: that of steps of operations. */
  readonly realMs: () => number;
  readonly policy: ModelPolicy;
  readonly records: ClusterRecords;
  /** Called when something changed by itself, with the service's id. */
  readonly changed: (id: string) => void;
  /** The specs that services were last seen with. */
  readonly specs: Map<string, ServiceSpec>;
  /** Work that changes a service or its primary; one at a time for each service. */
  readonly inTurn: InTurn;
  script: Script;
};

export type ModelPolicy = Readonly<{
  /** For how long backups are kept. */
  windowMs: number;
  snapshotEveryMs: number;
  /** Automatic failovers of a service are at least this far apart. */
  failoverCooldownMs: number;
}>;

/** Whether a transition can be made now. */
export type Reached =
  | { kind: 'go' }
  | { kind: 'wait'; leftMs: number }
  | { kind: 'fail'; why: string };

const GO: Reached = { kind: 'go' };

/**
 * Begins a transition of a service, or continues the one that has begun: it waits for the delay of
 * the script, and fails if the script says so.
 */
export async function reachTransition(
  model: Model,
  id: string,
  step: string,
  transition: SimulatedTransition | null,
): Promise<Reached> {
  if (transition === null) return GO;
  const { state, clock } = model;
  const open = state.find(id)?.pending ?? null;
  const pending =
    open !== null && open.step === step && open.transition === transition
      ? open
      : await beginTransition(model, id, step, transition);
  const leftMs = pending.doneMs - clock.nowMs();
  if (leftMs > 0) return { kind: 'wait', leftMs };
  const attempt: Attempt = { ...pending, serviceId: id };
  const why = failureOf(model.script, attempt);
  if (why === null) return GO;
  await state.change(id, (service) => {
    service.pending = { ...pending, failed: pending.failed + 1 };
  });
  return { kind: 'fail', why };
}

async function beginTransition(
  model: Model,
  id: string,
  step: string,
  transition: SimulatedTransition,
) {
  const { state, clock, script, seed } = model;
  const number = await countTransition(model, transition);
  const delayMs = delayOf(script, seed, { transition, serviceId: id, number, failed: 0 });
  const pending = { step, transition, number, failed: 0, doneMs: clock.nowMs() + delayMs };
  await state.change(id, (service) => {
    service.pending = pending;
  });
  if (delayMs > 0) announceAt(model, id, pending.doneMs);
  return pending;
}

/** Has the reconciler ask again when a delay is over. */
export function announceAt({ clock, changed }: Model, id: string, atMs: number): void {
  clock.alarmAt(atMs, async () => changed(id));
}

/** Counts a transition. @returns its number since the script was set, from 1 */
export function countTransition(
  { state }: Model,
  transition: SimulatedTransition,
): Promise<number> {
  return state.changeRegion((region) => {
    const number = (region.begun[transition] ?? 0) + 1;
    region.begun[transition] = number;
    return number;
  });
}

/** After how long to ask again, in real time: the clock may be advanced meanwhile. */
export function waitMsOf({ clock }: Model, leftMs: number): number {
  if (!clock.isRunning()) return MIN_WAIT_MS;
  return Math.ceil(Math.min(leftMs, MAX_WAIT_MS, Math.max(MIN_WAIT_MS, leftMs / 10)));
}
const MIN_WAIT_MS = 50;
const MAX_WAIT_MS = 1000;
