/** Deletes the services of a region whose time is over, and announces that before. */
import { randomUUID } from 'node:crypto';
import { ALLOWED } from '@howdah/contract';
import { WITHOUT_END } from '../domain/service/lifetime.ts';
import { protectionOfRow } from '../domain/service/spec.ts';
import type { Region } from '../engine/regions.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import { recordRemoval } from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import { listExpired, listExpiring, reportExpiring } from '../store/expiry.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation, HOWDAH } from '../store/operations.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';

export function createExpiry({ db }: Store, { code, engine }: Region, log: Log, rounds: Rounds) {
  /** A service that cannot be changed must not keep the others. */
  const alone = (id: string, work: () => Promise<void>): Promise<void> =>
    work().catch((error: unknown) =>
      log.warn({ service: id, err: error }, 'the end of a service failed; trying again'),
    );
  return rounds.every(
    'expiries',
    async (closing) => {
      for (const id of await listExpiring(db, code))
        await alone(id, async () => db.transaction().execute((tx) => warn(tx, id)));
      const expired = await listExpired(db, code);
      // A region that takes no changes now deletes them later.
      if (expired.length === 0 || (await engine.lifecycle.whyNoChanges()) !== null) return;
      for (const id of expired) {
        if (closing.aborted) return;
        await alone(id, async () => {
          const isBegun = await db.transaction().execute((tx) => beginDelete(tx, id));
          if (isBegun) log.info({ service: id }, 'a service has expired and is deleted');
        });
      }
    },
    log,
  );
}

/** Writes the event, unless the service was given more time meanwhile. */
async function warn(tx: Tx, id: string): Promise<void> {
  const locked = await lockService(tx, id);
  const due = locked?.service.expiry_warning_at ?? null;
  if (locked === null || due === null || due.getTime() > Date.now()) return;
  await changeService(tx, locked.service, { expiry_warning_at: null }, locked.operation);
  await reportExpiring(tx, locked.service);
}

/** @returns whether the delete has begun: the service was not changed meanwhile */
async function beginDelete(tx: Tx, id: string): Promise<boolean> {
  const locked = await lockService(tx, id);
  if (locked === null) return false;
  const { service, operation } = locked;
  const { expires_at: at, deleting, status, purge_on_expiry: purge } = service;
  if (at === null || at.getTime() > Date.now() || deleting) return false;
  if (ALLOWED[status].delete !== 'accept') return false;
  if (protectionOfRow(service) === 'PROD') {
    await changeService(tx, service, WITHOUT_END, operation);
    return false;
  }
  const begun = await beginOperation(tx, service, 'delete', HOWDAH, operation);
  // A delete ends what the operation before it was asked for: a restore must not go on with it.
  const request = { creates_extension: null, drops_extension: null };
  await changeService(tx, service, { ...request, deleting: true, purge, attempt: 0 }, begun);
  await makeDue(tx, id);
  const entry = { id: randomUUID(), count: 1, lastAt: new Date() };
  await recordRemoval(tx, id, 'expireService', entry, HOWDAH);
  return true;
}
