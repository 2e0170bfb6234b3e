/** The stream of the project's events: it says which data to read again. */
import { EVENT_TYPES } from '@howdah/contract/values';
import { useQueryClient, type QueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { BASE } from './api.ts';

/** Changes come in bursts, one step after the other; they are handled together. */
const GATHER_MS = 80;

let streaming = false;
/** Whether events arrive: pages then poll rarely. */
export const isStreaming = (): boolean => streaming;

/** How long pages wait for the stream before they read without it. */
const OPENS_WITHIN_MS = 1000;

/**
 * Follows the events of a project while a page shows it. The browser reconnects where the stream
 * broke.
 *
 * @returns whether pages may read: an answer from before the stream was open may lack its events,
 *   and would have to be read again
 */
export function useEvents(project: string): boolean {
  const cache = useQueryClient();
  const [mayRead, setMayRead] = useState(false);
  useEffect(() => {
    const source = new EventSource(`${BASE}/projects/${project}/events`);
    const look = gather(cache);
    let isFirst = true;
    const begin = (): void => {
      isFirst = false;
      clearTimeout(patience);
      setMayRead(true);
    };
    const patience = setTimeout(begin, OPENS_WITHIN_MS);
    source.addEventListener('open', () => {
      streaming = true;
      if (isFirst) begin();
      else look(null);
    });
    source.addEventListener('error', () => {
      streaming = false;
      if (isFirst) begin();
    });
    for (const name of [...EVENT_TYPES, 'gap'])
      source.addEventListener(name, ({ data }: MessageEvent) => look(serviceOf(String(data))));
    source.addEventListener('message', ({ data }) => look(serviceOf(String(data))));
    return () => {
      clearTimeout(patience);
      source.close();
      streaming = false;
    };
  }, [cache, project]);
  return mayRead;
}

/** The service of an event; null: any. */
function serviceOf(text: string): string | null {
  const event: unknown = JSON.parse(text);
  const data: unknown =
    typeof event === 'object' && event !== null ? Reflect.get(event, 'data') : null;
  const id: unknown =
    typeof data === 'object' && data !== null ? Reflect.get(data, 'service_id') : null;
  return typeof id === 'string' ? id : null;
}

/** Reads the lists and the named services again, once for all events of a burst. */
function gather(cache: QueryClient): (service: string | null) => void {
  let named: Set<string> | null = null;
  let all = false;
  return (service) => {
    if (service === null) all = true;
    if (named !== null) {
      if (service !== null) named.add(service);
      return;
    }
    named = new Set(service === null ? [] : [service]);
    setTimeout(() => {
      const ids = named ?? new Set();
      const everything = all;
      named = null;
      all = false;
      void cache.invalidateQueries({
        predicate: ({ queryKey: [kind, id] }) =>
          everything
            ? kind !== 'me'
            : kind === 'services' ||
              kind === 'deleted' ||
              kind === 'operations' ||
              (kind === 'service' && typeof id === 'string' && ids.has(id)),
      });
    }, GATHER_MS);
  };
}
