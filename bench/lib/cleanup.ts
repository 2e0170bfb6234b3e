/**
 * The clean-up of a benchmark: it runs in reverse order at the end, after an error and on Ctrl-C.
 */
import { messageOf } from '@howdah/contract/thrown';
type Cleanup = () => Promise<unknown>;

const pending: Cleanup[] = [];

/** @returns a function that ends the thing early; it is then forgotten here */
export function atEnd(cleanup: Cleanup): () => Promise<void> {
  pending.push(cleanup);
  return async () => {
    const index = pending.indexOf(cleanup);
    if (index === -1) return;
    pending.splice(index, 1);
    await cleanup();
  };
}

let last = Promise.resolve();

/**
 * Removes everything, the newest first. A thing that cannot be removed is named and left. Ctrl-C
 * ends the measurement; its own clean-up then waits for that of the signal: a disk must not be
 * unmounted while servers on it are still being stopped.
 */
export async function cleanUp(): Promise<void> {
  last = last.then(takeAllAway);
  return last;
}

async function takeAllAway(): Promise<void> {
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    try {
      await next();
    } catch (error) {
      process.stderr.write(`clean-up: ${messageOf(error)}\n`);
    }
  }
}

/** Cleans up before the process ends by a signal. */
export function cleanUpOnSignals(): void {
  let ending = false;
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const) {
    process.on(signal, () => {
      if (ending) return;
      ending = true;
      process.stderr.write('\ncleaning up …\n');
      void cleanUp().finally(() => process.exit(code));
    });
  }
}
