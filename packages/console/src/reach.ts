/** Whether the control plane answered the last call. */
import { HowdahError, NoAnswerError } from '@howdah/client';
import { QueryCache } from '@tanstack/react-query';
import { useSyncExternalStore } from 'react';

let lost = false;
const listeners = new Set<() => void>();

function see(next: boolean): void {
  if (next === lost) return;
  lost = next;
  for (const listener of listeners) listener();
}

export const isLoss = (error: unknown): boolean =>
  error instanceof NoAnswerError ||
  (error instanceof HowdahError && [502, 503, 504].includes(error.status));

/** @param onEnded called when the API says that the session is over */
export const watchReach = (onEnded: () => void): QueryCache =>
  new QueryCache({
    onError: (error) => {
      if (isLoss(error)) see(true);
      if (error instanceof HowdahError && error.status === 401) onEnded();
    },
    onSuccess: () => see(false),
  });

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useIsLost = (): boolean => useSyncExternalStore(subscribe, () => lost);
