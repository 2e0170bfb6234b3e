/** Leases that are databases, in a server that the leases of a service share. */
import { ApiError, MAX_LEASES } from '@howdah/contract';
import { storageGbOfDatabases } from '../domain/service/lease.ts';
import { endOfLease, laterEnd, lifetimeOfNew } from '../domain/service/lifetime.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { EngineUnavailable } from '../engine/engine.ts';
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
import { readUsedStorageGb } from './service-rules.ts';

/**
 * The disk space of each database that is a lease of a service, in gigabytes. A service that does
 * not run answers with no size: then that of all its files is the most that it can be.
 */
export async function readDatabaseGb(region: Region, id: string): Promise<number> {
  try {
    const bytes = await region.engine.leasing?.databaseBytes(id);
    if (bytes !== undefined) return bytes / 1e9;
  } catch (error) {
    if (!(error instanceof EngineUnavailable)) throw error;
  }
  return readUsedStorageGb(region, id);
}

/**
 * Takes a database for each secret. The first leases of a service, and the first after a commit
 * there, take a fork, which the next ones share; nobody gets its password.
 *
 * @param of `databaseGb`: the disk space of each
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
    databaseGb: number;
  }>,
): Promise<string[]> {
  const { parent, committed, secrets, ttlSeconds, databaseGb } = of;
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
  const { storage_gb: storageGb } = found ?? parent;
  refuseWithoutStorage(parent, storageGb, { used, count: secrets.length, databaseGb });
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

/**
 * Refuses more databases than the storage of their server has room for: beyond it, all of them
 * would be read-only.
 *
 * @param databases `used`: how many are there; `count`: how many more are asked for
 * @throws ApiError LIMIT_EXCEEDED
 */
function refuseWithoutStorage(
  { id }: ServiceRow,
  storageGb: number,
  { used, count, databaseGb }: Readonly<{ used: number; count: number; databaseGb: number }>,
): void {
  const neededGb = storageGbOfDatabases(used + count, databaseGb);
  if (neededGb <= storageGb) return;
  const wanted = Math.ceil(neededGb);
  throw new ApiError(
    'LIMIT_EXCEEDED',
    `count: found ${count}; each copy of the database of ${id} takes ` +
      `${databaseGb.toFixed(2)} GB, and the server that its leases share, with ${used} so far, ` +
      `would take ${neededGb.toFixed(2)} of ${storageGb} GB: take fewer, or leases with reset ` +
      `server (howdah lease take ${id}), or first howdah service resize ${id} ` +
      `--storage-gb ${wanted}`,
    { limit: 'storage_gb', allowed: storageGb, wanted },
  );
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
