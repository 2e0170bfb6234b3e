/**
 * The open event streams of this control plane. A stream is a place in the list of events and nothing more: it reads on from there
 * when somebody says that there is more, as fast as its reader takes it. So a slow reader holds no memory, and what a control plane
 * has not sent, another sends.
 */
import { Readable } from 'node:stream';
import { eventBounds, readEvents, type EventRow } from '../store/events.ts';
import type { Store } from '../store/database.ts';
import { isKeyValid } from '../store/keys.ts';

/** A comment is sent when there was nothing else for so long: proxies close what is silent. The key is looked at again, too. */
const HEARTBEAT_MS = 15_000;
/** After how long a client that lost its stream connects again. */
const RETRY_MS = 1000;
const BATCH = 100;
/** What a stream that is to end has to hand over what it has; then its connection is cut. */
const END_GRACE_MS = 100;

export type StreamRequest = {
  projectId: string;
  /** Whose key it is open with. */
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

export function createEventHub(store: Pick<Store, 'db' | 'listen'>) {
  const streams = new Set<Stream>();
  const reads = new Map<string, Promise<EventRow[]>>();
  let closing = false;

  const wake = (wanted: (stream: Stream) => boolean): void => {
    for (const stream of streams) {
      if (!wanted(stream)) continue;
      stream.woken = true;
      stream.wake();
    }
  };

  const end = (stream: Stream): void => {
    stream.ended = true;
    stream.wake();
    // One whose reader does not take what it has would not notice.
    setTimeout(stream.close, END_GRACE_MS).unref();
  };

  const endInvalid = async (stream: Stream): Promise<void> => {
    if (!(await isKeyValid(store.db, stream.publicKey))) end(stream);
  };

  store.listen('howdah_event', (projectId) => {
    // A read that is under way may have begun before the event that this reader is woken for.
    reads.clear();
    wake((stream) => projectId === null || stream.projectId === projectId);
  });
  store.listen('howdah_key', (publicKey) => {
    for (const stream of streams) {
      // While the metadata database cannot be asked, nobody can say whose keys are good.
      if (publicKey === null || stream.publicKey === publicKey)
        endInvalid(stream).catch(() => end(stream));
    }
  });

  /** Streams at the same place share a read. */
  const readAfter = (projectId: string, after: string): Promise<EventRow[]> => {
    const place = `${projectId} ${after}`;
    const underWay = reads.get(place);
    if (underWay !== undefined) return underWay;
    const read = readEvents(store.db, projectId, after, BATCH).finally(() => {
      if (reads.get(place) === read) reads.delete(place);
    });
    reads.set(place, read);
    return read;
  };

  /** Waits until there may be more. @returns false when nothing came for the time of a heartbeat */
  const more = (stream: Stream): Promise<boolean> =>
    new Promise((resolve) => {
      const settle = (came: boolean): void => {
        clearTimeout(timer);
        stream.wake = () => undefined;
        resolve(came);
      };
      const timer = setTimeout(() => settle(false), HEARTBEAT_MS);
      stream.wake = () => settle(true);
      if (stream.woken || stream.ended) settle(true);
    });

  async function* frames(stream: Stream): AsyncGenerator<string> {
    const bounds = await eventBounds(store.db);
    let after = stream.after ?? bounds.last;
    // So that the client knows that it is heard: from here on it misses nothing.
    yield `retry: ${RETRY_MS}\n\n`;
    if (BigInt(after) < BigInt(bounds.pruned)) yield gap(bounds.pruned);
    while (!stream.ended) {
      stream.woken = false;
      const events = await readAfter(stream.projectId, after);
      const last = events.at(-1);
      if (last !== undefined) {
        after = last.seq;
        if (!stream.ended)
          yield events
            .map(({ seq, type, doc }) => `id: ${seq}\nevent: ${type}\ndata: ${doc}\n\n`)
            .join('');
        continue;
      }
      if (!stream.follow) return;
      if (await more(stream)) continue;
      await endInvalid(stream);
      if (!stream.ended) yield ': still here\n\n';
    }
  }

  return {
    /** A stream of server-sent events, which ends with its key, its reader or this control plane. */
    open: (request: StreamRequest): Readable => {
      const stream: Stream = {
        ...request,
        ended: closing,
        woken: false,
        wake: () => undefined,
        close: () => undefined,
      };
      const text = frames(stream);
      const readable = new Readable({
        highWaterMark: 0,
        read() {
          text.next().then(
            ({ value, done }) => this.push(done === true ? null : value),
            (error: unknown) =>
              this.destroy(error instanceof Error ? error : new Error(String(error))),
          );
        },
        // Its reader has gone away, maybe while it waits for something to say.
        destroy(error, done) {
          stream.ended = true;
          stream.wake();
          streams.delete(stream);
          done(error);
        },
      });
      stream.close = () => readable.destroy();
      streams.add(stream);
      return readable;
    },
    count: (): number => streams.size,
    /** Ends all streams: their readers come back to the next control plane. */
    close: (): void => {
      closing = true;
      for (const stream of streams) end(stream);
    },
  };
}
export type EventHub = ReturnType<typeof createEventHub>;

/** Sent to a client that comes back after its events were pruned. */
function gap(pruned: string): string {
  return `event: gap\ndata: ${JSON.stringify({ type: 'gap', data: { pruned } })}\n\n`;
}
