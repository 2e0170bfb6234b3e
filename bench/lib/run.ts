/** Programs of the system that the benchmarks use. */
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { run } from '../../packages/server/src/engine/local/run.ts';

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

/** A free port, as the system gives one. */
export async function freePort(): Promise<number> {
  const { createServer } = await import('node:net');
  const probe = createServer();
  return new Promise((resolve, reject) => {
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => (typeof address === 'object' && address !== null ? resolve(address.port) : reject(new Error('no port'))));
    });
  });
}
