/**
 * The open event streams of this control plane. A stream is a position in the list of events: when
 * it is woken, it reads on from there, as fast as its reader takes it. So a slow reader costs no
 * memory, and another control plane sends what this one has not sent.
 */
import { Readable } from 'node:stream';
import { asError } from '@howdah/contract/thrown';
import { eventBounds, readEvents, type EventRow } from '../store/events.ts';
import type { Store } from '../store/database.ts';
import { isKeyValid } from '../store/keys.ts';

/**
 * A comment is sent after so long without an event, since proxies close silent connections; the key
 * is checked again, too.
 */
const HEARTBEAT_MS = 15_000;
/** After how long a client that lost its stream connects again. */
const RETRY_MS = 1000;
const BATCH = 100;
/** How long a stream that ends may still send what it has; then its connection is closed. */
const END_GRACE_MS = 100;

export type StreamRequest = {
  projectId: string;
  /** The public half of the key that it is open with. */
  publicKey: string;
  /** Begin after this event, a number as digits; null: with the next one. */
  after: string | null;
  /** Whether to wait for more at the end. */
  follow: boolean;
};

type Stream = StreamRequest & {
  ended: boolean;
  woken: boolean;
  wake: () => void;
  close: () => void;
};

type Hub = {
  readonly store: Pick<Store, 'db' | 'listen'>;
  readonly streams: Set<Stream>;
  /** The reads that are under way, by project and position. */
  readonly reads: Map<string, Promise<EventRow[]>>;
  closing: boolean;
};

export function createEventHub(store: Pick<Store, 'db' | 'listen'>) {
  const hub: Hub = { store, streams: new Set(), reads: new Map(), closing: false };
  listen(hub);
  return {
    /** A stream of server-sent events: it ends with its key, its reader or this process. */
    open: (request: StreamRequest): Readable => open(hub, request),
    count: (): number => hub.streams.size,
    /** Ends all streams: their readers connect again, to the next control plane. */
    close: (): void => {
      hub.closing = true;
      for (const stream of hub.streams) endStream(stream);
    },
  };
}
export type EventHub = ReturnType<typeof createEventHub>;

function listen(hub: Hub): void {
  hub.store.listen('howdah_event', (projectId) => {
    // A read that is under way may have begun before the event that this reader is woken for.
    hub.reads.clear();
    for (const stream of hub.streams) {
      if (projectId !== null && stream.projectId !== projectId) continue;
      stream.woken = true;
      stream.wake();
    }
  });
  hub.store.listen('howdah_key', (publicKey) => {
    for (const stream of hub.streams) {
      // Without the metadata database it is unknown which keys are valid.
      if (publicKey === null || stream.publicKey === publicKey)
        endIfInvalid(hub, stream).catch(() => endStream(stream));
    }
  });
}

function open(hub: Hub, request: StreamRequest): Readable {
  const stream: Stream = {
    ...request,
    ended: hub.closing,
    woken: false,
    wake: () => undefined,
    close: () => undefined,
  };
  const text = frames(hub, stream);
  const readable = new Readable({
    highWaterMark: 0,
    read() {
      text.next().then(
        ({ value, done }) => this.push(done === true ? null : value),
        (error: unknown) => this.destroy(asError(error)),
      );
    },
    // The stream's reader has gone away, perhaps while the stream waits for an event.
    destroy(error, done) {
      stream.ended = true;
      stream.wake();
      hub.streams.delete(stream);
      done(error);
    },
  });
  stream.close = () => readable.destroy();
  hub.streams.add(stream);
  return readable;
}

function endStream(stream: Stream): void {
  stream.ended = true;
  stream.wake();
  // A reader that does not read what it was sent would not notice.
  setTimeout(stream.close, END_GRACE_MS).unref();
}

async function endIfInvalid({ store }: Hub, stream: Stream): Promise<void> {
  if (!(await isKeyValid(store.db, stream.publicKey))) endStream(stream);
}

async function* frames(hub: Hub, stream: Stream): AsyncGenerator<string> {
  const bounds = await eventBounds(hub.store.db);
  let after = stream.after ?? bounds.last;
  // So that the client knows that the stream is open: from here on it misses nothing.
  yield `retry: ${RETRY_MS}\n\n`;
  if (BigInt(after) < BigInt(bounds.pruned)) yield gap(bounds.pruned);
  while (!stream.ended) {
    stream.woken = false;
    const events = await readAfter(hub, stream.projectId, after);
    const last = events.at(-1);
    if (last !== undefined) {
      after = last.seq;
      if (!stream.ended) yield events.map(frame).join('');
      continue;
    }
    if (!stream.follow) return;
    if (await waitForMore(stream)) continue;
    await endIfInvalid(hub, stream);
    if (!stream.ended) yield ': still here\n\n';
  }
}

/** Streams at the same position share a read. */
function readAfter({ store, reads }: Hub, projectId: string, after: string): Promise<EventRow[]> {
  const place = `${projectId} ${after}`;
  const underWay = reads.get(place);
  if (underWay !== undefined) return underWay;
  const read = readEvents(store.db, projectId, after, BATCH).finally(() => {
    if (reads.get(place) === read) reads.delete(place);
  });
  reads.set(place, read);
  return read;
}

/** Waits until there may be more. @returns false when nothing came for the time of a heartbeat */
function waitForMore(stream: Stream): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (came: boolean): void => {
      clearTimeout(timer);
      stream.wake = () => undefined;
      resolve(came);
    };
    const timer = setTimeout(() => settle(false), HEARTBEAT_MS);
    stream.wake = () => settle(true);
    if (stream.woken || stream.ended) settle(true);
  });
}

function frame({ seq, type, doc }: EventRow): string {
  return `id: ${seq}\nevent: ${type}\ndata: ${doc}\n\n`;
}

/** Sent to a client that comes back after its events were pruned. */
function gap(pruned: string): string {
  return `event: gap\ndata: ${JSON.stringify({ type: 'gap', data: { pruned } })}\n\n`;
}
