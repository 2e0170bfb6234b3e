/**
 * How far a running server is, and where it listens, by its own pid file; and the ways to end it.
 */
import { join } from 'node:path';
import { readTextIfSafe } from '../../lib/untrusted-files.ts';
import type { DataPlace } from './server-files.ts';

/** Where a running server is in its life, from its own pid file. */
export type Phase = 'starting' | 'ready' | 'stopping';

/** Orderly ways to end a server ([PG] 18.5), and the one that cannot be refused. */
export type StopMode = 'fast' | 'immediate' | 'kill';

/** The port that a server listens on, by its own pid file; null: it has only just begun. */
export function portOfServer(server: DataPlace): number | null {
  const line = noteOfServer(server)[3] ?? '';
  return /^[1-9]\d{0,4}$/.test(line) ? Number(line) : null;
}

/**
 * The lines of a server's own pid file ([PG] 73.1). Its user can write it: nothing more than its
 * port and its phase is believed.
 */
function noteOfServer({ data }: DataPlace): string[] {
  return (readTextIfSafe(join(data, 'postmaster.pid')) ?? '').split('\n');
}

/**
 * How far a running server is; recovery counts as starting, of a fork too (which the file calls
 * `standby` from its first moment).
 */
export async function phaseOf(server: DataPlace): Promise<Phase> {
  const line = noteOfServer(server)[7]?.trim();
  return line === 'ready' || line === 'stopping' ? line : 'starting';
}
