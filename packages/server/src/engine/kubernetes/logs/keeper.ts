/**
 * Keeps the server logs of a region beyond their pods: the new lines once a minute, of quiet logs
 * less often, before each step that ends pods, and as long as a pod is ending. Kubernetes deletes a
 * log with its pod.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pLimit, { type LimitFunction } from 'p-limit';
import type { Rounds } from '../../../lib/rounds.ts';
import { createTurns } from '../../../lib/turns.ts';
import type { KeptLogs } from '../../records.ts';
import type { Cache } from '../region/cache.ts';
import { podIn } from '../names.ts';
import type { ClusterState, ServerState } from '../cluster/state.ts';
import { firstStamp, lastStamp, linesIn, podTag, type LogLine } from './lines.ts';
import { pack } from './page.ts';
import { readOutput, type Extent, type LogSource, type Pod } from './pod-log.ts';

/** Logs that are read at a time: requests that change something need the other places. */
const AT_A_TIME = 4;
/** A pod whose node does not answer must not keep others waiting for long. */
const READ_WITHIN_MS = 5000;
/** Read of a log at a time. A server that writes more in a minute loses the oldest of it. */
const EXTENT: Extent = { lines: 6000, bytes: 4 * 1024 * 1024 };
const STEP_WITHIN_MS = 5000;
/** How often, and how many times, the log of a pod that is ending is read. */
const ENDING_EVERY_MS = 1000;
const ENDING_TIMES = 60;

export type LogKeeper = Readonly<{
  /** Keeps what is new in the logs of a service before a step ends its pods; never fails. */
  keepBefore: (id: string) => Promise<void>;
  /** Looks at a service whose pods have changed. */
  notice: (id: string) => void;
  close: () => Promise<void>;
}>;

type Parts = Readonly<{
  kube: LogSource;
  cache: Pick<Cache, 'cluster' | 'servers' | 'ids' | 'staleWhy'>;
  keptLogs: KeptLogs;
  /** Whether this control plane is the one that works. */
  mayWrite: () => boolean;
  /** Called with the error of background work, which is tried again. */
  failed: (error: unknown) => void;
  rounds: Rounds;
  /** After which a step goes on, whatever was read; ms. */
  stepWithinMs?: number;
}>;

/** The state of the log of a server. `at`: the stamp of the newest line that was read. */
type Known = Readonly<{ pod: string; at: string | null }>;

type Keeping = Parts &
  Readonly<{
    /** By service and server. */
    known: Map<string, Known>;
    /** The rounds that quiet services are left out of. */
    rests: Map<string, Rest>;
    inTurn: ReturnType<typeof createTurns>;
    /** Runs the requests of rounds, steps and ends, a few at a time. */
    limit: LimitFunction;
    signal: AbortSignal;
  }>;

export function createLogKeeper(parts: Parts): LogKeeper {
  const { cache, rounds, failed, stepWithinMs = STEP_WITHIN_MS } = parts;
  const ending = new AbortController();
  const { signal } = ending;
  const keeping: Keeping = {
    ...parts,
    known: new Map(),
    rests: new Map(),
    inTurn: createTurns(),
    limit: pLimit(AT_A_TIME),
    signal,
  };
  /** Pods that are ending and are followed, by their names here. */
  const followed = new Map<string, Promise<void>>();
  const limit = pLimit(AT_A_TIME);
  const round = rounds.every('keptLogs', () => keepAll(keeping, limit));
  round.startLater();
  return {
    keepBefore: async (id) => {
      const within = AbortSignal.any([signal, AbortSignal.timeout(stepWithinMs)]);
      const work = keepService({ ...keeping, signal: within }, id, () => true).catch(failed);
      // The metadata database may be slow, too.
      await Promise.race([work, sleep(stepWithinMs, undefined, { ref: false })]);
    },
    notice: (id) => {
      // A server that has ended says why.
      keeping.rests.delete(id);
      for (const { uid, leaving } of cache.servers(id)) {
        if (!leaving || followed.has(uid) || signal.aborted) continue;
        const work = followEnd(keeping, id, uid).finally(() => followed.delete(uid));
        followed.set(uid, work);
      }
    },
    close: async () => {
      ending.abort();
      await Promise.all([round.close(), ...followed.values()]);
    },
  };
}

/** Keeps what is new in the logs of all services that run and are not quiet. */
async function keepAll(keeping: Keeping, limit: LimitFunction): Promise<void> {
  const { cache, known, rests, signal, failed } = keeping;
  if (cache.staleWhy() !== null) return;
  const ids = cache.ids();
  const there = new Set(ids);
  for (const key of known.keys()) if (!there.has(idIn(key))) known.delete(key);
  for (const id of rests.keys()) if (!there.has(id)) rests.delete(id);
  const due = ids.filter((id) => isDue(rests.get(id)));
  const kept = await Promise.allSettled(
    due.map((id) =>
      limit(async () => {
        const hasMore = await keepService(keeping, id, () => true);
        rests.set(id, restAfter(hasMore, rests.get(id), Math.random()));
      }),
    ),
  );
  // A cluster that does not answer fails all of them, for one reason.
  const failure = kept.find(({ status }) => status === 'rejected');
  if (failure?.status === 'rejected' && !signal.aborted) failed(failure.reason);
}

/** Reads the log of a pod that is ending until it is gone: PostgreSQL says why it ends. */
async function followEnd(keeping: Keeping, id: string, uid: string): Promise<void> {
  const { cache, signal, failed } = keeping;
  let hasFailed = false;
  // A failure costs a second, and not the reason why the server ends.
  const goOn = (error: unknown): void => {
    if (!hasFailed) failed(error);
    hasFailed = true;
  };
  for (let times = 0; times < ENDING_TIMES && !signal.aborted; times += 1) {
    if (!cache.servers(id).some((server) => server.uid === uid)) return;
    await keepService(keeping, id, (server) => server.uid === uid).catch(goOn);
    await sleep(ENDING_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined);
  }
}

/** @returns whether any of the logs had new lines */
async function keepService(
  keeping: Keeping,
  id: string,
  isWanted: (server: ServerState) => boolean,
): Promise<boolean> {
  const { cache, inTurn } = keeping;
  const cluster = cache.cluster(id);
  if (cluster === null) return false;
  const wanted = cache.servers(id).filter(isWanted);
  const found = await Promise.all(
    wanted.map((server) => {
      const key = keyOf(id, server.n);
      return inTurn(key, () => keepServer(keeping, { id, cluster, server, key }));
    }),
  );
  return found.includes(true);
}

const keyOf = (id: string, server: number): string => `${id} ${server}`;
const idIn = (key: string): string => key.slice(0, key.indexOf(' '));

type Kept = Readonly<{ id: string; cluster: ClusterState; server: ServerState; key: string }>;

/** @returns whether the log had new lines */
async function keepServer(keeping: Keeping, { id, cluster, server, key }: Kept): Promise<boolean> {
  const { cache, keptLogs: kept, known, signal, mayWrite } = keeping;
  if (signal.aborted || !mayWrite() || cache.staleWhy() !== null) return false;
  const { namespace, name } = cluster;
  const tag = podTag(server.uid);
  const pod = { namespace, name: podIn(name, server.n), tag };
  const found = known.get(key);
  const before = found?.pod === tag ? found : await knownOf(kept, id, server.n, tag);
  const read = await readNew(keeping, pod, before.at);
  // Pods have their names again: these may be the lines of another one.
  const now = cache.servers(id).find(({ n }) => n === server.n);
  if (now !== undefined && now.uid !== server.uid) return true;
  const part = await pack(read.lines);
  // Another control plane may have taken over while this one read.
  if (!mayWrite()) return false;
  if (part !== null && !(await kept.add(id, server.n, { ...part, pod: tag }))) known.delete(key);
  else known.set(key, { pod: tag, at: read.at ?? before.at });
  return part !== null;
}

/** @param tag of the pod that the server has */
async function knownOf(kept: KeptLogs, id: string, server: number, tag: string): Promise<Known> {
  const parts = await kept.list(id, server);
  return { pod: tag, at: parts.find(({ pod }) => pod === tag)?.until ?? null };
}

/** @returns the new lines, newest first, and the stamp of the newest one of any program */
async function readNew(
  { kube, signal, limit }: Keeping,
  pod: Pod,
  at: string | null,
): Promise<{ lines: Iterable<LogLine>; at: string | null }> {
  const read = (previous: boolean) =>
    limit(async () => {
      const within = AbortSignal.any([signal, AbortSignal.timeout(READ_WITHIN_MS)]);
      return readOutput(kube, pod, { previous, since: at, extent: EXTENT, signal: within });
    });
  // The running container first: it may end meanwhile, and then is the one before.
  const { text } = await read(false);
  // The line that was the newest is read again, unless there is another container by now.
  const first = firstStamp(text);
  const isSame = at !== null && first !== null && first <= at;
  const earlier = isSame ? '' : (await read(true)).text;
  return { lines: linesSince(at, text, earlier), at: lastStamp(text) ?? lastStamp(earlier) };
}

/** @param outputs of containers, newest first; two may be of the same one */
function* linesSince(at: string | null, ...outputs: readonly string[]): Generator<LogLine> {
  let oldest: string | null = null;
  for (const output of outputs) {
    const below = oldest;
    for (const line of linesIn(output)) {
      if (at !== null && line.at <= at) break;
      if (below !== null && line.at >= below) continue;
      oldest = line.at;
      yield line;
    }
  }
}

// How often quiet logs are read: to ask hundreds of them each minute costs processor time.

/** A quiet log is read once in so many rounds. */
const MOST_ROUNDS = 8;

/** The last decision about a log: `left` rounds out of `every` go by until it is read again. */
export type Rest = { readonly every: number; left: number };

/** Whether a log is read in this round, which is one less to go by. */
export function isDue(rest: Rest | undefined): boolean {
  if (rest === undefined || rest.left === 0) return true;
  rest.left -= 1;
  return false;
}

/**
 * The rest of a log that was read: none after new lines, else about twice as long as before.
 *
 * @param random from 0 to 1; spreads logs over the rounds
 */
export function restAfter(hasMore: boolean, before: Rest | undefined, random: number): Rest {
  const every = hasMore ? 1 : Math.min(2 * (before?.every ?? 1), MOST_ROUNDS);
  return { every, left: Math.floor(every * (0.5 + random / 2)) };
}
