/**
 * Delivers events to webhooks. One control plane at a time works on a webhook: it turns events into
 * deliveries and attempts them one by one, in order until one fails. A slow receiver delays only
 * its own deliveries. Each is made at least once: after a crash it is sent again with the same id.
 */
import { RETRY_AFTER_SECONDS } from '@howdah/contract';
import type { BlockList } from 'node:net';
import type { Log } from '../lib/log.ts';
import { createParallelWork, type ParallelWork } from '../lib/parallel-work.ts';
import type { Rounds } from '../lib/rounds.ts';
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
import { deliver, UNREADABLE } from './receiver.ts';
import type { Sealer } from '../lib/sealer.ts';

/** Spreads the retries, so that a receiver that works again does not get all at once. */
const JITTER = 0.1;

export type DispatcherOptions = {
  store: Store;
  log: Log;
  rounds: Rounds;
  sealer: Sealer;
  allowed: BlockList;
};

type Dispatcher = Readonly<DispatcherOptions> & {
  readonly work: ParallelWork;
  /** Projects with webhooks: events of others need no search. */
  listening: Set<string>;
  hasBegun: boolean;
};

const INTERRUPTED = 'deliveries were interrupted; trying again';

export function createDispatcher(options: DispatcherOptions) {
  const { store, rounds } = options;
  const work = createParallelWork(options.log, 'webhook', INTERRUPTED);
  const dispatcher: Dispatcher = { ...options, work, listening: new Set(), hasBegun: false };
  const round = rounds.every('webhooks', () => lookForWork(dispatcher));
  return {
    start: (): void => {
      store.listen('howdah_event', (projectId) => {
        if (projectId === null || dispatcher.listening.has(projectId)) void round.run();
      });
      round.start();
    },
    /** Waits for the attempts that are under way. */
    close: async (): Promise<void> => {
      work.end();
      await round.close();
      await work.ended();
    },
  };
}

async function lookForWork(dispatcher: Dispatcher): Promise<void> {
  const { store, work } = dispatcher;
  // There is one control plane (see openStore), and it has just begun.
  if (!dispatcher.hasBegun) await releaseAllWebhooks(store.db);
  dispatcher.hasBegun = true;
  const webhooks = await lookOverWebhooks(store.db);
  dispatcher.listening = new Set(webhooks.map(({ projectId }) => projectId));
  for (const { id, due } of webhooks) if (due) work.begin(id, () => deliverDue(dispatcher, id));
}

/** Delivers to one webhook until nothing is due. */
async function deliverDue(dispatcher: Dispatcher, id: string): Promise<void> {
  const { store, work } = dispatcher;
  if (!(await claimWebhook(store.db, id))) return;
  try {
    while (!work.isEnding() && (await fanOut(store.db, id)));
    while (!work.isEnding()) {
      const due = await nextDelivery(store.db, id);
      if (due === null) break;
      await attemptDelivery(dispatcher, id, due);
    }
  } finally {
    await releaseWebhook(store.db, id);
  }
}

async function attemptDelivery(
  dispatcher: Dispatcher,
  id: string,
  due: DueDelivery,
): Promise<void> {
  const attempts = due.attempts + 1;
  const attempt = await attemptOf(dispatcher, due);
  await recordAttempt(
    dispatcher.store.db,
    due.id,
    attempt,
    attempt.error === null ? null : retryAfterMs(attempts),
  );
  if (attempt.error !== null)
    dispatcher.log.info(
      { webhook: id, message: due.message_id, attempt: attempts, reason: attempt.error },
      'not delivered',
    );
}

async function attemptOf({ sealer, allowed }: Dispatcher, due: DueDelivery): Promise<Attempt> {
  const secret = sealer.open(due.secret);
  if (secret === null) return { responseStatus: null, error: UNREADABLE };
  return deliver(due.url, secret, { id: due.message_id, body: due.body }, allowed);
}

/** The wait after so many attempts; null: no further attempt. */
function retryAfterMs(attempts: number): number | null {
  const seconds = RETRY_AFTER_SECONDS[attempts - 1];
  return seconds === undefined ? null : Math.round(seconds * 1000 * (1 + Math.random() * JITTER));
}
