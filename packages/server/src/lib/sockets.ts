/** Two sockets that belong together: a client, and the server that it is connected to. */
import type { Socket } from 'node:net';

/** @returns null: the work failed, took too long, or one of the sockets was closed */
export async function within<T>(
  sockets: readonly Socket[],
  limitMs: number,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T | null> {
  const ending = new AbortController();
  const end = (): void => ending.abort();
  const timer = setTimeout(end, limitMs);
  for (const socket of sockets) socket.once('close', end);
  try {
    return await work(ending.signal);
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
    for (const socket of sockets) socket.off('close', end);
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
