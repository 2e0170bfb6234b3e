/**
 * Sends the messages of alerts. The rows of `alert_messages` are the queue: a message is removed
 * when its destination accepts it, so a crash sends it again, with the same id. Destinations are
 * independent; the messages of one are sent in their order.
 */
import type { BlockList } from 'node:net';
import { isSummarized, summaryOf } from '../domain/alerts/messages.ts';
import { isQuiet } from '../domain/alerts/quiet-hours.ts';
import type { Sealer } from '../lib/sealer.ts';
import type { Log } from '../lib/log.ts';
import { createParallelWork, type ParallelWork } from '../lib/parallel-work.ts';
import type { Rounds } from '../lib/rounds.ts';
import {
  listWaitingDestinations,
  nextMessage,
  recordFailure,
  recordSent,
  releaseHeld,
  type DueMessage,
} from '../store/alert-messages.ts';
import type { DestinationRow } from '../store/alerts.ts';
import type { Store } from '../store/database.ts';
import { openDestination, UNREADABLE_DESTINATION } from './destination-secrets.ts';
import { sendAlert } from './destination.ts';

/** The wait after the first failure; it doubles with each further one. */
const FIRST_RETRY_MS = 10_000;
const LONGEST_RETRY_MS = 600_000;
/** A message that was not accepted for so long is given up: those after it wait for it. */
const GIVE_UP_AFTER_MS = 6 * 3_600_000;

type SenderOptions = {
  store: Store;
  log: Log;
  rounds: Rounds;
  sealer: Sealer;
  allowed: BlockList;
};

type Sender = Readonly<SenderOptions & { work: ParallelWork }>;

const INTERRUPTED = 'messages were interrupted; trying again';

export function createAlertSender(options: SenderOptions) {
  const work = createParallelWork(options.log, 'destination', INTERRUPTED);
  const sender = { ...options, work };
  const round = options.rounds.every('alertMessages', async () => {
    for (const destination of await listWaitingDestinations(options.store.db))
      work.begin(destination.id, () => sendAll(sender, destination));
  });
  return {
    start: round.startLater,
    /** Waits for the attempts that are under way. */
    close: async (): Promise<void> => {
      work.end();
      await round.close();
      await work.ended();
    },
  };
}

/** Sends the messages of a destination until one fails. */
async function sendAll(
  sender: Sender,
  destination: DestinationRow & { has_held: boolean },
): Promise<void> {
  const { store, sealer, allowed } = sender;
  const { id, type, secret, quiet_hours: quiet } = destination;
  const now = new Date();
  if (destination.has_held && (quiet === null || !isQuiet(quiet, now)))
    await releaseHeld(store.db, id, isSummarized(type) ? (held) => summaryOf(held, now) : null);
  const secrets = openDestination(sealer, secret);
  while (!sender.work.isEnding()) {
    const due = await nextMessage(store.db, id);
    if (due === null) return;
    const { error } =
      secrets === null
        ? { error: UNREADABLE_DESTINATION }
        : await sendAlert(destination, secrets, messageId(due), due.body, allowed);
    if (error !== null) return noteFailure(sender, id, due, error);
    await recordSent(store.db, id, due.id);
  }
}

const messageId = ({ id }: DueMessage): string => `alert_${id}`;

async function noteFailure(
  { store, log }: Sender,
  destination: string,
  due: DueMessage,
  error: string,
): Promise<void> {
  const isLast = Date.now() - due.created.getTime() > GIVE_UP_AFTER_MS;
  await recordFailure(store.db, destination, due.id, error, isLast ? null : waitMs(due.attempts));
  log.info({ destination, message: messageId(due), reason: error }, 'an alert was not accepted');
}

const waitMs = (attempts: number): number =>
  Math.min(FIRST_RETRY_MS * 2 ** Math.min(attempts, 10), LONGEST_RETRY_MS);
