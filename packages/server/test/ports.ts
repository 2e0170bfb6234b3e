/** Ports that are listened on, and ports that a test takes away. */
import { once as onceEmitted } from 'node:events';
import { connect, type Server } from 'node:net';
import { until } from './until.ts';

/** Whether something listens on a port. */
export const listens = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket
      .once('error', () => resolve(false))
      .once('connect', () => {
        socket.destroy();
        resolve(true);
      });
  });

/**
 * Listens on a port as soon as it is free: a process that a killed server had just forked has it a
 * moment longer.
 */
export async function untilHeld(holder: Server, port: number): Promise<void> {
  await until(`port ${port} is free`, async () => {
    holder.listen(port, '127.0.0.1');
    await onceEmitted(holder, 'listening');
    return true;
  });
}
