/** Programs of the system that the benchmarks use. */
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { run } from '../../packages/server/src/lib/run.ts';
import { portIsFree } from '../../packages/server/src/engine/local/postgres/server.ts';

export { run };

/** Whether a program is installed. */
export async function has(program: string): Promise<boolean> {
  for (const directory of (process.env['PATH'] ?? '').split(delimiter)) {
    try {
      await access(join(directory, program));
      return true;
    } catch {
      // not in this directory
    }
  }
  return false;
}

/**
 * Ports for servers made by hand, below those that the system gives to connections: one of these
 * might take a port before the server does.
 */
const PORTS = { first: 22_000, count: 8000 };
let next = Math.floor(Math.random() * PORTS.count);

/** A port without a listener that was not used in this run. */
export async function freePort(): Promise<number> {
  const port = PORTS.first + (next++ % PORTS.count);
  return (await portIsFree('127.0.0.1', port)) ? port : freePort();
}
