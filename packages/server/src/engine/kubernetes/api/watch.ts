/**
 * Follows the objects of a kind: a list first, then every change, as long as the region is open. A
 * watch that ends goes on at its last change, or begins again if the API server has forgotten that.
 * https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
 */
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { asError } from '@howdah/contract/thrown';
import { Type, type Static, type TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { selectorOf, type Kube } from './client.ts';
import { KubeError } from './errors.ts';
import { pathOf, type Place } from './kinds.ts';

/** The first wait after a failure; it doubles with each further one. */
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;
/** The API server ends the watch then: a connection that died unnoticed is noticed. */
const ONE_WATCH_S = 300;
/** The place of the watch is not kept by the API server any more. */
const GONE = 410;

const EVENT = Type.Object({
  type: Type.Union(
    ['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR'].map((type) => Type.Literal(type)),
  ),
  object: Type.Unknown(),
});
const OBJECT = Type.Object({
  metadata: Type.Object({ resourceVersion: Type.String() }),
});
const FAILURE = Type.Object({ code: Type.Optional(Type.Number()) });

export type Follower<T> = Readonly<{
  /** All objects that exist; those of before that are missing are gone. */
  all: (items: readonly T[]) => void;
  changed: (item: T) => void;
  removed: (item: T) => void;
  /** The cluster does not answer; null: it does again. */
  failed: (error: Error | null) => void;
}>;

/** Follows until the signal; never throws. */
export async function follow<T extends TSchema>(
  kube: Kube,
  place: Place,
  schema: T,
  selector: Readonly<Record<string, string>>,
  follower: Follower<Static<T>>,
  signal: AbortSignal,
): Promise<void> {
  let waitMs = FIRST_WAIT_MS;
  while (!signal.aborted) {
    try {
      const { items, resourceVersion } = await kube.list(place, schema, selector);
      follower.failed(null);
      follower.all(items);
      waitMs = FIRST_WAIT_MS;
      let version = resourceVersion;
      while (!signal.aborted)
        version = await watchOnce(kube, { place, schema, selector, version }, follower, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof KubeError && error.status === GONE) continue;
      follower.failed(asError(error));
      await sleep(waitMs, undefined, { signal }).catch(() => undefined);
      waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS);
    }
  }
}

type Watched<T extends TSchema> = Readonly<{
  place: Place;
  schema: T;
  selector: Readonly<Record<string, string>>;
  version: string;
}>;

/** @returns the place to go on from, once the API server has ended the watch */
async function watchOnce<T extends TSchema>(
  kube: Kube,
  { place, schema, selector, version: from }: Watched<T>,
  follower: Follower<Static<T>>,
  signal: AbortSignal,
): Promise<string> {
  const query = new URLSearchParams({
    watch: 'true',
    allowWatchBookmarks: 'true',
    timeoutSeconds: String(ONE_WATCH_S),
    resourceVersion: from,
    labelSelector: selectorOf(selector),
  });
  const what = `watch ${place.kind.plural}`;
  const answer = await kube.stream(`${pathOf(place)}?${query.toString()}`, what, signal);
  let version = from;
  for await (const line of createInterface({ input: answer })) {
    const event: unknown = JSON.parse(line);
    if (!Value.Check(EVENT, event)) throw new KubeError(`cannot ${what}: no event`, 200, null);
    if (event.type === 'ERROR') throw errorOf(what, event.object);
    if (!Value.Check(OBJECT, event.object))
      throw new KubeError(`cannot ${what}: an event without an object`, 200, null);
    version = event.object.metadata.resourceVersion;
    // An object that is not as it should be is none of ours; its place counts.
    if (event.type === 'BOOKMARK' || !Value.Check(schema, event.object)) continue;
    if (event.type === 'DELETED') follower.removed(event.object);
    else follower.changed(event.object);
  }
  return version;
}

function errorOf(what: string, object: unknown): KubeError {
  const code = Value.Check(FAILURE, object) ? (object.code ?? null) : null;
  return new KubeError(`the cluster cannot ${what} any longer`, code, null);
}
