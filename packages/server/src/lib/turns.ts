/** Work that is done one after the other. */

export type InTurn = <T>(key: string, work: () => Promise<T>) => Promise<T>;

/** Runs work of the same key one after the other, whether the one before failed or not. */
export function createTurns(): InTurn {
  const turns = new Map<string, Promise<unknown>>();
  return (key, work) => {
    const mine = (turns.get(key) ?? Promise.resolve()).then(work);
    const settled = mine.then(
      () => undefined,
      () => undefined,
    );
    turns.set(key, settled);
    void settled.then(() => turns.get(key) === settled && turns.delete(key));
    return mine;
  };
}
