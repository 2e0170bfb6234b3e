/** The two sides of a session, which end with each other. */
import type { Socket } from 'node:net';
import type { Leave } from './limits.ts';

/** Leaves a place once both sides are closed. */
export function leaveAfter(sockets: readonly Socket[], leave: Leave): void {
  const open = new Set(sockets);
  for (const socket of sockets) {
    const closed = (): void => {
      open.delete(socket);
      if (open.size === 0) leave();
    };
    if (socket.closed) closed();
    else socket.once('close', closed);
  }
}

/**
 * Passes bytes on in both directions. `pipe` reads no more from one side than the other one takes,
 * so a client that stops to read costs two buffers. While one side takes nothing, the end of the
 * other one is not read either.
 *
 * @param endMs for what is on its way when one side has ended
 */
export function pass(client: Socket, server: Socket, endMs: number): void {
  client.pipe(server);
  server.pipe(client);
  endWith(client, server, endMs);
  endWith(server, client, endMs);
}

/** Closes the other side once one is closed, after what is still to be sent. */
function endWith(one: Socket, other: Socket, endMs: number): void {
  const end = (): void => {
    if (other.destroyed) return;
    other.destroySoon();
    const timer = setTimeout(() => other.destroy(), endMs);
    other.once('close', () => clearTimeout(timer));
  };
  if (one.closed) end();
  else one.once('close', end);
}
