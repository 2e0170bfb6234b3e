/** Has a running server read its configuration files again, and sees that it did. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Monitor } from './monitor.ts';
import { findProcess, pauseMs } from '../../../lib/processes.ts';
import type { Server } from './server.ts';

/** What is so busy that it is never seen asleep has read them before it lets the next one in: it looks for signals first. */
const DEADLINE_MS = 5000;

/**
 * Returns when the rules of who is let in are in force, and new sessions begin with the new settings.
 *
 * Its first process, woken by the signal, reads the settings, tells its children of them, reads the rules, and only then sleeps again:
 * process_pm_reload_request and ServerLoop of PostgreSQL's src/backend/postmaster/postmaster.c.
 */
export async function reread(monitor: Monitor, key: string, { postmaster }: Server): Promise<void> {
  await monitor.query(key, 'select pg_reload_conf()');
  const begunMs = Date.now();
  while (
    Date.now() - begunMs < DEADLINE_MS &&
    (await findProcess(postmaster.pid))?.asleep === false
  )
    await sleep(pauseMs(begunMs));
}
