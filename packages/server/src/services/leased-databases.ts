/** Leases that are databases, in a server that the leases of a service share. */
import { ApiError, MAX_LEASES } from '@howdah/contract';
import { endOfLease, laterEnd, lifetimeOfNew } from '../domain/service/lifetime.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import type { Region } from '../engine/regions.ts';
import { newId } from '../lib/ids.ts';
import {
  countLeasedDatabases,
  extendLeasedDatabases,
  insertLeasedDatabases,
  lockShared,
} from '../store/leased-databases.ts';
import { noteShared } from '../store/leased-servers.ts';
import { changeService, lockService, type LockedService } from '../store/services.ts';
import type { LeaseRow, Tx } from '../store/tables.ts';
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
  const used = found === null ? 0 : await countLeasedDatabases(tx, found.id);
  if (used + secrets.length > MAX_LEASES)
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `count: the server that leases of ${parent.id} share has ${used} databases, of ` +
        `${MAX_LEASES} that are allowed; return some, or take leases with reset server`,
      { limit: 'leases', allowed: MAX_LEASES, used, wanted: used + secrets.length },
    );
  const serviceId = found?.id ?? (await takeShared(tx, region, caller, of));
  const locked = found === null ? null : await lockService(tx, found.id);
  if (locked !== null) await keepUntil(tx, locked, end);
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

/** A shared server stays until the end of its last lease, also where another key made it. */
async function keepUntil(tx: Tx, { service, operation }: LockedService, end: Date): Promise<void> {
  const later = laterEnd(service.expires_at, end);
  if (later !== null) await changeService(tx, service, { expires_at: later }, operation);
}

/**
 * Extends leases that are databases, and the locked servers that they are in.
 *
 * @throws ApiError FORBIDDEN beyond the bounds of the key, or where it ends a lease of another one
 *   sooner
 */
export async function extendDatabases(
  tx: Tx,
  caller: Caller,
  { databases, servers }: { databases: readonly LeaseRow[]; servers: readonly LockedService[] },
  ttlSeconds: number,
  nowMs: number,
): Promise<void> {
  if (databases.length === 0) return;
  const end = endOfLease(caller, ttlSeconds, nowMs);
  for (const lease of databases) refuseSooner(caller, lease, end);
  for (const server of servers) await keepUntil(tx, server, end);
  const ids = databases.map(({ id }) => id);
  await extendLeasedDatabases(tx, ids, end);
}

/** The data of a lease is gone at its end: a key brings that of another key no nearer. */
function refuseSooner({ role, publicKey }: Caller, lease: LeaseRow, end: Date): void {
  const { id, created_by: maker, expires_at: before } = lease;
  if (role === 'admin' || maker === publicKey || before === null || end >= before) return;
  throw new ApiError(
    'FORBIDDEN',
    `ttl_seconds: the lease ${id} was taken by another key, and would end before ` +
      `${before.toISOString()}: ask for more, or use that key or an admin key`,
  );
}
