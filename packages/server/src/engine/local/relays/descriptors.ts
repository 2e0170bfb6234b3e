/**
 * The descriptors that the activator has for clients. Without any left it can start no server, and
 * cannot see whether a server runs.
 */
import { readNow } from '../../../lib/processes.ts';

/** `left` may be taken; each listener takes one, and each client two. */
export type Descriptors = { left: number };

/** A client, and its connection to the server. */
export const DESCRIPTORS_OF_CLIENT = 2;

/** For starts of servers, and for links to control planes: a part, but at least so many. */
const KEPT_PART = 1 / 8;
const KEPT_AT_LEAST = 64;

/** The descriptors of this process. Node.js has raised its limit to what is allowed. */
export function ownDescriptors(): Descriptors {
  const limit = /^Max open files +(\d+)/m.exec(readNow('/proc/self/limits') ?? '')?.[1];
  if (limit === undefined) return { left: Infinity };
  const kept = Math.max(Math.ceil(Number(limit) * KEPT_PART), KEPT_AT_LEAST);
  return { left: Number(limit) - kept };
}
