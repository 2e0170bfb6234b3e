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
  lockLeased,
  releaseService,
  renewLease,
} from '../store/leases.ts';
import { listWhatMaySleep, type MaySleep } from '../store/service-lists.ts';
import { changeService } from '../store/services.ts';

type Tools = Readonly<{ store: Store; region: Region; log: Log; rounds: Rounds }>;

/** When a service that sleeps is looked at again: its certificate is renewed. */
const RECHECK_MS = 3_600_000;

export function createSuspensions(tools: Tools) {
  const { store, region, log, rounds } = tools;
  return rounds.every(
    'suspensions',
    async (closing) => {
      const { sleep } = region.engine;
      if (sleep === null) return;
      const maySleep = await listWhatMaySleep(store.db, region.code);
      if (maySleep.length === 0) return;
      const idle = await sleep.idle();
      for (const one of maySleep) {
        if (closing.aborted) return;
        const idleMs = idle.get(one.id);
        if (idleMs === undefined || idleMs < one.afterMs) continue;
        // A service that cannot fall asleep must not keep the others.
        await fallAsleep(tools, sleep, one, idleMs).catch((error: unknown) =>
          log.warn({ service: one.id, err: error }, 'a service did not fall asleep; trying again'),
        );
      }
    },
    log,
  );
}

/** Under the lease: nothing else starts or stops its server meanwhile. */
async function fallAsleep(
  { store: { db }, region: { code }, log, rounds }: Tools,
  sleep: Sleeping,
  { id, afterMs }: MaySleep,
  idleMs: number,
): Promise<void> {
  const token = randomUUID();
  const service = await db.transaction().execute((tx) => claimService(tx, code, id, token));
  if (service === null) return;
  const renewal = rounds.every('leases', () => renewLease(db, id, token), log);
  renewal.startLater();
  let lookAgainMs = RECHECK_MS;
  try {
    if (service.operation_id !== null || service.status !== 'READY' || service.deleting) return;
    if (!(await sleep.fallAsleep(serviceSpec(service), afterMs))) return;
    await db.transaction().execute(async (tx) => {
      const { service: now, operation } = await lockLeased(tx, id, token, null);
      const asleep = {
        suspended_at: new Date(),
        last_active_at: new Date(Date.now() - idleMs),
        ...givenBack(now, operation === null ? RECHECK_MS : 0),
      };
      await changeService(tx, now, asleep, operation);
    });
    log.info({ service: id }, 'a service fell asleep');
  } catch (error) {
    // Clients may wait by now: the reconciler has the server run again.
    lookAgainMs = 0;
    throw error;
  } finally {
    await renewal.close();
    // A lease that was given back is nobody's: this changes nothing then.
    await releaseService(db, id, token, lookAgainMs);
  }
}
