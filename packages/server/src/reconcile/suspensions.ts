/** Puts the services of a region to sleep that nobody has used for long enough. */
import { randomUUID } from 'node:crypto';
import { serviceSpec } from '../domain/service/spec.ts';
import type { Sleeping } from '../engine/sleep.ts';
import type { Region } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import type { Store } from '../store/database.ts';
import {
  claimService,
  givenBack,
  lockClaimed,
  makeDue,
  releaseService,
  renewClaim,
} from '../store/claims.ts';
import { listSuspended, listWhatMaySleep, type MaySleep } from '../store/service-lists.ts';
import { changeService } from '../store/services.ts';

type Tools = Readonly<{ store: Store; region: Region; log: Log; rounds: Rounds }>;

/** When a service that sleeps is looked at again: its certificate is renewed. */
const RECHECK_MS = 3_600_000;

/** A service that something keeps awake is asked again after its own time, or this. */
const HELD_MS = 30_000;

export function createSuspensions(tools: Tools) {
  const { store, region, log, rounds } = tools;
  /** When to ask again what keeps a service awake, by a clock that never jumps. */
  let askAgainMs: ReadonlyMap<string, number> = new Map();
  return rounds.every(
    'suspensions',
    async (closing) => {
      const { sleep } = region.engine;
      if (sleep === null) return;
      const maySleep = await listWhatMaySleep(store.db, region.code);
      const suspended = await listSuspended(store.db, region.code);
      if (maySleep.length === 0 && suspended.length === 0) return;
      const awake = await sleep.awake();
      await reportAwake(tools, suspended, awake);
      const later = new Map<string, number>();
      for (const one of maySleep) {
        if (closing.aborted) return;
        const idleMs = awake.get(one.id) ?? null;
        if (idleMs === null || idleMs < one.afterMs) continue;
        const againMs = askAgainMs.get(one.id) ?? 0;
        if (performance.now() < againMs) {
          later.set(one.id, againMs);
          continue;
        }
        // A service that cannot fall asleep must not keep the others.
        const isAsleep = await tryToSleep(tools, sleep, one, idleMs).catch((error: unknown) => {
          log.warn({ service: one.id, err: error }, 'a service did not fall asleep; trying again');
          return false;
        });
        if (!isAsleep) later.set(one.id, performance.now() + Math.min(one.afterMs, HELD_MS));
      }
      askAgainMs = later;
    },
    log,
  );
}

/**
 * Has services reconciled that were recorded as asleep and are not. A client may come while a
 * service falls asleep: what the activator reports then finds the claim taken.
 */
async function reportAwake(
  { store }: Tools,
  suspended: readonly string[],
  awake: ReadonlyMap<string, unknown>,
): Promise<void> {
  for (const id of suspended)
    if (awake.has(id)) await store.db.transaction().execute((tx) => makeDue(tx, id));
}

/**
 * What keeps a service awake is asked without its claim: the claim would keep changes of users
 * waiting, and is not needed where the answer is that it stays awake.
 */
async function tryToSleep(
  tools: Tools,
  sleep: Sleeping,
  one: MaySleep,
  idleMs: number,
): Promise<boolean> {
  return (await sleep.prepare(one.id)) && (await fallAsleep(tools, sleep, one, idleMs));
}

/**
 * Under the claim: nothing else starts or stops its server meanwhile.
 *
 * @returns whether it sleeps
 */
async function fallAsleep(
  { store: { db }, region: { code }, log, rounds }: Tools,
  sleep: Sleeping,
  { id, afterMs }: MaySleep,
  idleMs: number,
): Promise<boolean> {
  const token = randomUUID();
  const service = await db.transaction().execute((tx) => claimService(tx, code, id, token, 'kept'));
  if (service === null) return false;
  const renewal = rounds.every('claims', () => renewClaim(db, id, token), log);
  renewal.startLater();
  let lookAgainMs = RECHECK_MS;
  try {
    if (service.operation_id !== null || service.status !== 'READY' || service.deleting)
      return false;
    if (!(await sleep.fallAsleep(serviceSpec(service), afterMs))) return false;
    await db.transaction().execute(async (tx) => {
      const { service: now, operation } = await lockClaimed(tx, id, token, null);
      const asleep = {
        suspended_at: new Date(),
        last_active_at: new Date(Date.now() - idleMs),
        ...givenBack(now, operation === null ? RECHECK_MS : 0),
      };
      await changeService(tx, now, asleep, operation);
    });
    log.info({ service: id }, 'a service fell asleep');
    return true;
  } catch (error) {
    // Clients may wait by now: the reconciler has the server run again.
    lookAgainMs = 0;
    throw error;
  } finally {
    await renewal.close();
    // A claim that was given back is nobody's: this changes nothing then.
    await releaseService(db, id, token, lookAgainMs);
  }
}
