/** Waits for the effect of a change that is answered with 200, not 202. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from '../store/database.ts';
import { howItGoes } from '../store/operations.ts';
import type { Db } from '../store/tables.ts';
import { amendAnswer, type Caller, type Outcome } from './change.ts';

/** A change that was waited for. */
export type Done = Outcome & { message: string };

/**
 * How long an answer waits for the effect of its change: less than clients and proxies wait for
 * answers. The change goes on after that.
 */
export const ANSWER_WITHIN_MS = 20_000;
/** The interval of its polls. */
const DONE_POLL_MS = 10;

/**
 * Waits for a change that is answered with 200, not 202: it is done then, or the message says
 * that it takes longer.
 */
export async function untilDone(
  store: Store,
  caller: Caller,
  { operationId }: Outcome,
  message: string,
): Promise<Done> {
  const done = await howItWent(store.db, operationId, message);
  await amendAnswer(store, caller, done);
  return done;
}

async function howItWent(db: Db, operationId: string | null, message: string): Promise<Done> {
  const deadlineMs = Date.now() + ANSWER_WITHIN_MS;
  for (;;) {
    const how = operationId === null ? 'done' : await howItGoes(db, operationId);
    if (how === 'done') return { message, operationId };
    if (how === 'failing' || Date.now() > deadlineMs) {
      return {
        message:
          'accepted, and not done yet: ' +
          `GET /projects/{project_id}/operations/${operationId} shows its progress`,
        operationId,
      };
    }
    await sleep(DONE_POLL_MS);
  }
}
