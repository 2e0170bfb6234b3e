/**
 * Delivers events to webhooks. Each webhook is worked on by one control plane at a time, which turns events into deliveries and tries
 * one after the other: in their order as long as all goes well, and a slow receiver holds up nobody but itself. At least once: what a crash cuts
 * short is sent again, with the same id.
 */
import { RETRY_AFTER_SECONDS } from '@howdah/contract';
import type { BlockList } from 'node:net';
import type { Log } from '../lib/log.ts';
import type { Store } from '../store/database.ts';
import {
  claimWebhook,
  fanOut,
  nextDelivery,
  recordAttempt,
  releaseAllWebhooks,
  releaseWebhook,
  lookOverWebhooks,
  type Attempt,
  type DueDelivery,
} from '../store/webhooks.ts';
import { deliver } from './receiver.ts';
import { UNREADABLE, type Sealer } from './sealer.ts';

/** How often what is due is asked for; new events are told of. */
const TIMER_MS = 1000;
/** So that a receiver that comes back is not met by all retries at once. */
const JITTER = 0.1;

export type DispatcherOptions = { store: Store; log: Log; sealer: Sealer; allowed: BlockList };

export function createDispatcher({ store, log, sealer, allowed }: DispatcherOptions) {
  const working = new Map<string, Promise<void>>();
  /** Projects with webhooks: what happens in others is nothing to look at. */
  let listening = new Set<string>();
  let timer: NodeJS.Timeout | undefined;
  let begun = false;
  let closing = false;
  let round: Promise<void> | undefined;
  let again = false;

  const attemptOf = async (due: DueDelivery): Promise<Attempt> => {
    const secret = sealer.open(due.secret);
    if (secret === null) return { responseStatus: null, error: UNREADABLE };
    return deliver(due.url, secret, { id: due.message_id, body: due.body }, allowed);
  };

  /** Delivers what is due to one webhook, until nothing is. */
  const work = async (id: string): Promise<void> => {
    if (!(await claimWebhook(store.db, id))) return;
    try {
      while (!closing && (await fanOut(store.db, id)));
      while (!closing) {
        const due = await nextDelivery(store.db, id);
        if (due === null) break;
        const attempt = await attemptOf(due);
        await recordAttempt(
          store.db,
          due.id,
          attempt,
          attempt.error === null ? null : retryAfterMs(due.attempts + 1),
        );
        if (attempt.error !== null)
          log.info(
            {
              webhook: id,
              message: due.message_id,
              attempt: due.attempts + 1,
              reason: attempt.error,
            },
            'not delivered',
          );
      }
    } finally {
      await releaseWebhook(store.db, id);
    }
  };

  const lookForWork = async (): Promise<void> => {
    // There is one control plane (see openStore), and it has just begun.
    if (!begun) await releaseAllWebhooks(store.db);
    begun = true;
    const webhooks = await lookOverWebhooks(store.db);
    listening = new Set(webhooks.map(({ projectId }) => projectId));
    for (const { id, due } of webhooks) {
      if (!due || working.has(id) || closing) continue;
      const done = work(id)
        .catch((error: unknown) =>
          log.warn({ webhook: id, err: error }, 'deliveries were interrupted; trying again'),
        )
        .finally(() => working.delete(id));
      working.set(id, done);
    }
  };

  /** Looks for work, once more if asked to while it does. */
  const look = (): void => {
    if (closing) return;
    again = round !== undefined;
    round ??= lookForWork()
      .catch((error: unknown) =>
        log.warn({ err: error }, 'could not look for deliveries that are due'),
      )
      .finally(() => {
        round = undefined;
        if (again) look();
      });
  };

  return {
    start: (): void => {
      store.listen('howdah_event', (projectId) =>
        projectId === null || listening.has(projectId) ? look() : undefined,
      );
      timer = setInterval(look, TIMER_MS);
      look();
    },
    /** Lets the attempts under way end. */
    close: async (): Promise<void> => {
      closing = true;
      clearInterval(timer);
      await round;
      await Promise.all(working.values());
    },
  };
}

/** When to try again after so many attempts; null: not. */
function retryAfterMs(attempts: number): number | null {
  const seconds = RETRY_AFTER_SECONDS[attempts - 1];
  return seconds === undefined ? null : Math.round(seconds * 1000 * (1 + Math.random() * JITTER));
}
