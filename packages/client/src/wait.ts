import type { HowdahClient, Schemas } from './client.ts';
import { HowdahError } from './errors.ts';
import { pause } from './retry.ts';

type Service = Schemas['Service'];

/** The end of a wait: a status; `DELETED`: the service is gone. */
export type Target = Service['status'];

export type WaitOptions = {
  /** The longest wait, in ms; default ten minutes. */
  timeoutMs?: number;
  signal?: AbortSignal;
  /** Called with each status on the way. */
  onStatus?: (service: Service) => void;
};

/**
 * The wait has ended without its target: it took too long, or the service was deleted meanwhile.
 */
export class WaitError extends Error {
  override readonly name = 'WaitError';
}

/** Clients of Tiger Cloud poll once a second; a create with a spare takes a fraction of that. */
const POLL_MS = { first: 50, longest: 1000, events: 10_000 } as const;

/**
 * Waits until a service has a status, by the stream of events, or by polling if there is no stream;
 * `DELETED`: until it is gone. A lost connection does not end the wait.
 *
 * @returns the service as it is then; null when it is gone
 * @throws WaitError, HowdahError
 */
export async function waitFor(
  client: HowdahClient,
  service: Pick<Service, 'project_id' | 'service_id'>,
  target: Target,
  { timeoutMs = 600_000, signal, onStatus }: WaitOptions = {},
): Promise<Service | null> {
  const deadline = AbortSignal.timeout(timeoutMs);
  const either = signal === undefined ? deadline : AbortSignal.any([signal, deadline]);
  const events = hearOf(client, service);
  let last: Service | null = null;
  try {
    for (let waitMs: number = POLL_MS.first; ; waitMs = Math.min(waitMs * 1.5, POLL_MS.longest)) {
      const seen = await look(client, service, either);
      if (seen !== null && seen.status !== last?.status) onStatus?.(seen);
      if (seen === null ? target === 'DELETED' : seen.status === target) return seen;
      if (seen === null)
        throw new WaitError(
          `service ${service.service_id} no longer exists, and will not become ${target}`,
        );
      last = seen;
      await events.pause(waitMs, either);
    }
  } catch (error) {
    if (!deadline.aborted || signal?.aborted === true) throw error;
    const seconds = timeoutMs / 1000;
    const message =
      `service ${service.service_id} is ${last?.status ?? 'unseen'} after ${seconds} s, ` +
      `not ${target}; its operations say what it does`;
    throw new WaitError(message, { cause: error });
  } finally {
    events.close();
  }
}

/**
 * Listens to the stream of events for changes of a service. Without the stream nothing wakes a
 * pause, so pauses are short.
 */
function hearOf(
  client: HowdahClient,
  { project_id, service_id }: Pick<Service, 'project_id' | 'service_id'>,
) {
  const ended = new AbortController();
  let open = false;
  let missed = false;
  let pausing: AbortController | null = null;
  let reader: ReadableStreamDefaultReader<string> | null = null;
  const wake = (): void => {
    missed = true;
    pausing?.abort();
  };

  const listen = async (): Promise<void> => {
    const { data } = await client.GET('/projects/{project_id}/events', {
      params: { path: { project_id } },
      parseAs: 'stream',
      signal: ended.signal,
    });
    if (data === null || data === undefined) return;
    open = true;
    wake(); // the stream has no events from before it was open
    reader = data.pipeThrough(new TextDecoderStream()).getReader();
    // Closed while it was being opened: an open stream would keep the program from ending.
    if (ended.signal.aborted) return reader.cancel();
    for (let part = await reader.read(); !part.done; part = await reader.read())
      if (part.value.includes(service_id)) wake();
  };
  void listen()
    .catch(() => undefined)
    .finally(() => {
      open = false;
      wake();
    });

  return {
    /**
     * Ends early when the service has changed.
     *
     * @throws what `signal` was aborted with
     */
    pause: async (ms: number, signal: AbortSignal): Promise<void> => {
      if (!missed) {
        pausing = new AbortController();
        await pause(open ? POLL_MS.events : ms, AbortSignal.any([signal, pausing.signal])).catch(
          (error: unknown) => {
            if (signal.aborted) throw error;
          },
        );
        pausing = null;
      }
      missed = false;
    },
    close: (): void => {
      ended.abort();
      // An abort that comes to nothing would leave the stream open.
      reader?.cancel().catch(() => undefined);
    },
  };
}

async function look(
  client: HowdahClient,
  { project_id, service_id }: Pick<Service, 'project_id' | 'service_id'>,
  signal: AbortSignal,
) {
  try {
    const { data } = await client.GET('/projects/{project_id}/services/{service_id}', {
      params: { path: { project_id, service_id } },
      signal,
    });
    return data ?? null;
  } catch (error) {
    if (error instanceof HowdahError && error.code === 'NOT_FOUND') return null;
    throw error;
  }
}
