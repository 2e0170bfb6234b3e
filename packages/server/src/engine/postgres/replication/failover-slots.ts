/**
 * Logical slots that go on when the primary changes: those with `failover => true`, once a standby
 * has synchronised them (docs/decisions/0083-failover-slots.md).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { SLOTS_ROLE } from '../roles.ts';
import type { Monitored } from '../sessions/monitor.ts';

/**
 * How long a switchover waits, before writes pause, for slots that the standby lacks. A worker that
 * could not connect tries again after ten seconds.
 */
const SYNCHRONISED_WITHIN_MS = 12_000;
/** How long writes pause so that the last positions of consumers reach the standby. */
const POSITIONS_WITHIN_MS = 5000;
const POLL_MS = 20;
/** How often a worker is woken, which otherwise sleeps for up to 30 s. */
const WAKE_EVERY_MS = 200;

/** A slot, and the position up to which its consumer has confirmed changes. */
export type SlotPosition = { readonly name: string; readonly confirmed: string | null };

/** Older versions of PostgreSQL have no such columns, and then there is no such slot. */
const slotsWith = (column: 'failover' | 'synced'): string =>
  `select slot_name::text as name, confirmed_flush_lsn::text as confirmed
   from pg_replication_slots s
   where slot_type = 'logical' and not temporary and (to_jsonb(s) ->> '${column}')::boolean
     and to_jsonb(s) ->> 'invalidation_reason' is null`;

/** The failover slots of a primary that users made. */
const failoverSlots = (monitor: Monitored, key: string): Promise<SlotPosition[]> =>
  monitor.query<SlotPosition>(key, slotsWith('failover'));

/** The failover slots that a standby has. */
export const syncedSlots = (monitor: Monitored, key: string): Promise<SlotPosition[]> =>
  monitor.query<SlotPosition>(key, slotsWith('synced'));

/** The names of slots of the primary that a standby does not have. */
export function missingSlots(
  primary: readonly SlotPosition[],
  standby: readonly SlotPosition[],
): string[] {
  return primary
    .filter(({ name }) => !standby.some((slot) => slot.name === name))
    .map(({ name }) => name);
}

/** The names of slots that a standby has at another position than the primary. */
export function laggingSlots(
  primary: readonly SlotPosition[],
  standby: readonly SlotPosition[],
): string[] {
  return primary
    .filter(({ name, confirmed }) =>
      standby.some((slot) => slot.name === name && slot.confirmed !== confirmed),
    )
    .map(({ name }) => name);
}

/**
 * Waits until a standby has the failover slots of the primary, for a limited time: a slot without a
 * consumer that reads cannot be synchronised. Writes go on meanwhile.
 *
 * @param from by what the monitor knows the primary
 * @throws Error when one of the two does not answer
 */
export async function awaitFailoverSlots(
  monitor: Monitored,
  from: string,
  standby: string,
): Promise<void> {
  const lacks = async (): Promise<string[]> => {
    const slots = await failoverSlots(monitor, from);
    return slots.length === 0 ? [] : missingSlots(slots, await syncedSlots(monitor, standby));
  };
  if ((await lacks()).length === 0) return;
  await pollSlots(monitor, standby, SYNCHRONISED_WITHIN_MS, async () => {
    // A standby takes a slot whose consumer has passed the transactions that ran at its creation:
    // the consumer sees that by this record, which the server writes every 15 s.
    await monitor.query(from, 'select pg_log_standby_snapshot()');
    return (await lacks()).length === 0;
  });
}

/**
 * Ends the sessions of users, and waits until the standby has the positions of their slots: a
 * consumer that keeps no position of its own would get its last changes twice. The gateway routes
 * nowhere: nobody comes back meanwhile.
 *
 * @returns the slots whose last position the standby does not have
 */
export async function settleFailoverSlots(
  monitor: Monitored,
  from: string,
  standby: string,
): Promise<string[]> {
  let lagging: string[] = [];
  try {
    if ((await failoverSlots(monitor, from)).length === 0) return [];
    await pollSlots(monitor, standby, POSITIONS_WITHIN_MS, async () => {
      if ((await monitor.query(from, END_SESSIONS)).length > 0) return false;
      lagging = laggingSlots(
        await failoverSlots(monitor, from),
        await syncedSlots(monitor, standby),
      );
      return lagging.length === 0;
    });
  } catch {
    // One of the two does not answer: the next steps of the switchover find that out.
  }
  return lagging;
}

/** @returns the names of the logical slots of a server that has become the primary */
export async function keptSlots(monitor: Monitored, key: string): Promise<string[]> {
  return (await failoverSlots(monitor, key)).map(({ name }) => name);
}

/** The names of slots that each of some standbys has: they go on, whichever takes over. */
export function slotsOnAll(standbys: readonly (readonly SlotPosition[])[]): string[] {
  const [first = [], ...others] = standbys.map((slots) => slots.map(({ name }) => name));
  return first.filter((name) => others.every((names) => names.includes(name)));
}

/** A shutdown ends them in a moment anyway. Standbys, and a copy in another region, go on. */
const END_SESSIONS = `select pg_terminate_backend(a.pid)
  from pg_stat_activity a join pg_roles r on r.oid = a.usesysid
  where a.backend_type in ('client backend', 'walsender') and not r.rolsuper
    and r.rolname <> '${SLOTS_ROLE}'`;

/** Wakes the worker of a standby again and again, until a condition holds or the time is over. */
async function pollSlots(
  monitor: Monitored,
  standby: string,
  limitMs: number,
  isDone: () => Promise<boolean>,
): Promise<void> {
  const endMs = performance.now() + limitMs;
  for (let wakeMs = 0; performance.now() < endMs; await sleep(POLL_MS)) {
    if (await isDone()) return;
    if (performance.now() < wakeMs) continue;
    // The worker is woken by every reload.
    await monitor.query(standby, 'select pg_reload_conf()');
    wakeMs = performance.now() + WAKE_EVERY_MS;
  }
}

/**
 * @param slots those of users on the former primary
 * @param kept those of the new primary
 * @param lagging those whose last position it may not have
 */
export function sayOfSlots(
  slots: readonly string[],
  kept: readonly string[],
  lagging: readonly string[],
): string[] {
  const removed = slots.filter((name) => !kept.includes(name));
  const repeating = lagging.filter((name) => kept.includes(name));
  return [
    ...(removed.length === 0
      ? []
      : ['replication slots, which the new primary has not, were removed: ' + removed.join(', ')]),
    ...(kept.length === 0 ? [] : [`failover slots go on: ${kept.join(', ')}`]),
    ...(repeating.length === 0
      ? []
      : [`consumers that keep no position may get changes twice: ${repeating.join(', ')}`]),
  ];
}
