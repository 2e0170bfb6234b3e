/**
 * Has the engine make one step towards the desired state of a service, and shows a long step
 * meanwhile.
 */
import { messageOf } from '@howdah/contract/thrown';
import { begunStep } from '../domain/operation.ts';
import type { BeginStep, Verdict } from '../engine/engine.ts';
import { moveOnce } from './move.ts';
import { askOwnEngine } from './own-step.ts';
import { announceFault, saveSteps, type ReconcilerContext, type Work } from './work.ts';

/** A step that takes longer is shown while it is in progress. */
export const SHOW_AFTER_MS = 250;

/** Makes one step. An engine that throws has failed at the step it had begun. */
export async function takeStep(context: ReconcilerContext, work: Work): Promise<Verdict> {
  const { log } = context;
  let show: NodeJS.Timeout | undefined;
  let shown: Promise<unknown> = Promise.resolve();
  const save = (): void => {
    shown = shown
      .then(() => saveSteps(context, work))
      .catch((error: unknown) =>
        log.warn({ service: work.id, err: error }, 'could not show a step'),
      );
  };
  const begin: BeginStep = async (name, seen, progress) => {
    if (progress === undefined) await announceFault(context, work, seen);
    const open = work.steps.at(-1);
    const isOpen = open?.name === name && open.finished === null;
    if (progress !== undefined) {
      // A late line of a step that has ended begins none.
      if (!isOpen) return;
      open.detail = progress;
      return save();
    }
    // Tried again after a wait: still the same step.
    if (isOpen) return;
    work.steps.push(begunStep(name));
    show = setTimeout(save, SHOW_AFTER_MS);
  };
  try {
    return await askEngine(context, work, begin);
  } catch (error) {
    log.error({ service: work.id, err: error }, 'unexpected engine error');
    const reason = messageOf(error);
    return {
      did: work.steps.at(-1)?.name ?? null,
      detail: reason,
      // Nothing was seen: a service that slept still sleeps.
      seen: {
        reachable: false,
        present: true,
        provisioned: false,
        asleep: work.service.suspended_at !== null,
      },
      outcome: 'failed',
      reason,
    };
  } finally {
    clearTimeout(show);
    await shown;
  }
}

async function askEngine(
  context: ReconcilerContext,
  work: Work,
  begin: BeginStep,
): Promise<Verdict> {
  return (await moveOnce(context, work, begin)) ?? askOwnEngine(context, work, begin);
}
