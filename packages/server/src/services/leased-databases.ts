/** Leases that are databases, in a server that the leases of a service share. */
import { ApiError, MAX_LEASES } from '@howdah/contract';
import { lifetimeOfNew } from '../domain/service/lifetime.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import type { Region } from '../engine/regions.ts';
import { newId } from '../lib/ids.ts';
import {
  countLeasedDatabases,
  insertLeasedDatabases,
  lockShared,
} from '../store/leased-databases.ts';
import { noteShared } from '../store/leased-servers.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';
import type { Caller } from './change.ts';
import { newSecret, takeForks, type Secret } from './leased-forks.ts';

/**
 * Takes a database for each secret. The first leases of a service, and the first after a commit
 * there, take a fork, which the next ones share; nobody gets its password.
 *
 * @returns the ids of the leases, in the order of the secrets
 * @throws ApiError LIMIT_EXCEEDED
 */
export async function takeDatabases(
  tx: Tx,
  region: Region,
  caller: Caller,
  of: Readonly<{
    parent: ServiceRow;
    committed: string | null;
    secrets: readonly Secret[];
    ttlSeconds: number;
  }>,
): Promise<string[]> {
  const { parent, committed, secrets, ttlSeconds } = of;
  const end = lifetimeOfNew(caller, { ttl_seconds: ttlSeconds }, 'DEV').expires_at;
  if (end === null) throw new Error('a lease was taken without an end');
  const found = committed === null ? null : await lockShared(tx, parent.id, committed);
  const serviceId = found?.id ?? (await takeShared(tx, region, caller, of));
  if (found !== null) await keepUntil(tx, found, end);
  const used = await countLeasedDatabases(tx, serviceId);
  if (used + secrets.length > MAX_LEASES)
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `count: the server that leases of ${parent.id} share has ${used} databases, of ` +
        `${MAX_LEASES} that are allowed; return some, or take leases with reset server`,
      { limit: 'leases', allowed: MAX_LEASES, used, wanted: used + secrets.length },
    );
  const made = secrets.map(({ verifier }) => {
    const id = newId();
    const name = `lease_${id}`;
    return { id, serviceId, database: name, role: name, verifier, expiresAt: end };
  });
  const createdBy = caller.publicKey;
  await insertLeasedDatabases(
    tx,
    made.map((row) => ({ ...row, createdBy })),
  );
  return made.map(({ id }) => id);
}

/** Takes a fork that the leases share. */
async function takeShared(
  tx: Tx,
  region: Region,
  caller: Caller,
  of: Readonly<{ parent: ServiceRow; committed: string | null; ttlSeconds: number }>,
): Promise<string> {
  const [id] = await takeForks(tx, region, caller, { ...of, secrets: [await newSecret()] });
  if (id === undefined) throw new Error('no fork was taken');
  await noteShared(tx, id, of.committed);
  return id;
}

/** A shared server stays until the end of its last lease. */
async function keepUntil(tx: Tx, service: ServiceRow, end: Date): Promise<void> {
  if (service.expires_at === null || service.expires_at >= end) return;
  const locked = await lockService(tx, service.id);
  if (locked !== null)
    await changeService(tx, locked.service, { expires_at: end }, locked.operation);
}
