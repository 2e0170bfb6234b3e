/** Has a running server read its configuration files again, and sees that it did. */
import { setTimeout as sleep } from 'node:timers/promises';
import { startPatience } from '../../../lib/patience.ts';
import type { Monitored } from '../../postgres/sessions/monitor.ts';
import { findProcess, pauseMs } from '../../../lib/processes.ts';
import type { Server } from './server.ts';

/**
 * A process that is never seen asleep reads the settings before it accepts the next connection: it
 * handles signals first. Clients can keep it busy, and those that are no longer allowed would stay
 * meanwhile.
 */
const DEADLINE_MS = 5000;

/**
 * Returns when pg_hba.conf is in force, and new sessions begin with the new settings.
 *
 * The postmaster, woken by the signal, reads the settings, signals its children, reads pg_hba.conf,
 * and only then sleeps again: process_pm_reload_request and ServerLoop of PostgreSQL's
 * src/backend/postmaster/postmaster.c.
 */
export async function reread(
  monitor: Monitored,
  key: string,
  { postmaster }: Server,
): Promise<void> {
  await monitor.query(key, 'select pg_reload_conf()');
  const begunMs = Date.now();
  const { pid } = postmaster;
  const patience = startPatience({ deadlineMs: DEADLINE_MS, pids: () => Promise.resolve([pid]) });
  while (!patience.isOver() && (await findProcess(pid))?.asleep === false)
    await sleep(pauseMs(begunMs));
  patience.stop();
}
