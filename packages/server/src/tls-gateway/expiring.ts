/** A map of values that are forgotten after a while, and when there are too many. */
export function createExpiring<T>(most: number, keptMs: number, nowMs: () => number) {
  const entries = new Map<string, Readonly<{ value: T; endMs: number }>>();
  return {
    get: (key: string): T | undefined => {
      const entry = entries.get(key);
      if (entry === undefined || entry.endMs > nowMs()) return entry?.value;
      entries.delete(key);
      return undefined;
    },
    set: (key: string, value: T): void => {
      entries.delete(key);
      for (const oldest of entries.keys()) {
        if (entries.size < most) break;
        entries.delete(oldest);
      }
      entries.set(key, { value, endMs: nowMs() + keptMs });
    },
  };
}
