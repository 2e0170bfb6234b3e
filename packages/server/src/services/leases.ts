/** Leases: forks of a service that are taken for tests, extended and returned. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ALLOWED,
  ApiError,
  denialOfLease,
  isId,
  refusal,
  type ExtendLeasesBody,
  type Lease,
  type ReturnLeasesBody,
  type TakeLeasesBody,
} from '@howdah/contract';
import { defaultLeaseTtl } from '../domain/service/lease.ts';
import { changedLifetime } from '../domain/service/lifetime.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { protectionOfRow } from '../domain/service/spec.ts';
import { EngineUnavailable } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import { noteDemand, readLeases } from '../store/leased-servers.ts';
import { returnLeasedDatabases } from '../store/leased-databases.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation } from '../store/operations.ts';
import { changeService, lockService, readPlace, type LockedService } from '../store/services.ts';
import type { Db, LeaseRow, Tx } from '../store/tables.ts';
import { amendAnswer, makeChange, type Caller } from './change.ts';
import { ANSWER_WITHIN_MS } from './completion.ts';
import type { ControlContext } from './control-context.ts';
import { extendDatabases, readDatabaseGb, takeDatabases } from './leased-databases.ts';
import { newSecret, requesterOf, takeForks, type Secret } from './leased-forks.ts';
import { refuseByRole, refuseUnconfirmed } from './permissions.ts';
import { refuseFullDisk } from './room.ts';
import {
  lockOwnService,
  refuseMoved,
  refuseWithoutAnswer,
  serviceNotFound,
  type Accepted,
} from './service-rules.ts';
import { refuseSecondProject } from './single-project.ts';

/**
 * Takes leases: warm forks that have everything that was committed, and new forks for the rest.
 * Answers when all are ready, or after a while with those that are not. Their passwords are in this
 * answer only.
 */
export async function takeLeases(
  context: ControlContext,
  caller: Caller,
  body: TakeLeasesBody,
): Promise<Accepted> {
  const { store } = context;
  const region = await regionOfParent(context, caller, body.from);
  const committed = await committedIn(region, body.from);
  await refuseFullDisk(region, 'leases');
  const databaseGb = body.reset === 'database' ? await readDatabaseGb(region, body.from) : null;
  const secrets = await Promise.all(Array.from({ length: body.count ?? 1 }, newSecret));
  const ttlSeconds = body.ttl_seconds ?? defaultLeaseTtl(caller.bounds);
  const taken = new Map<string, Secret>();
  await makeChange(store, caller, async (tx) => {
    const parent = await lockParent(context, tx, caller, region, body);
    const of = { parent, committed, secrets, ttlSeconds };
    const ids =
      databaseGb === null
        ? await takeForks(tx, region, caller, of)
        : await takeDatabases(tx, region, caller, { ...of, databaseGb });
    for (const [n, secret] of secrets.entries()) taken.set(ids[n] ?? '', secret);
    await noteDemand(tx, parent.id, committed);
    return answerOf(await readLeases(tx, caller.projectId, [...taken.keys()]), taken);
  });
  const rows = await untilReady(store.db, caller.projectId, [...taken.keys()]);
  const answer = answerOf(rows, taken);
  await amendAnswer(store, caller, answer);
  return answer;
}

/** @throws ApiError NOT_FOUND; UNAVAILABLE_HERE where the region has no leases */
async function regionOfParent(
  { store, regions }: ControlContext,
  { projectId }: Caller,
  id: string,
): Promise<Region> {
  const place = isId(id) ? await readPlace(store.db, projectId, id) : null;
  if (place === null) throw serviceNotFound(id);
  const region = regions.of(place.region_code);
  if (region.engine.leasing !== null) return region;
  throw new ApiError(
    'UNAVAILABLE_HERE',
    `from: leases are taken of services on the machine of Howdah, and ${id} is in the region ` +
      `${region.code}; fork it (howdah service fork ${id} --ttl 10m), or take leases of a ` +
      'service of another region',
  );
}

/** The transactions of a service that have ended; null: it does not run, or does not answer. */
async function committedIn({ engine }: Region, id: string): Promise<string | null> {
  try {
    return (await engine.leasing?.committed(id)) ?? null;
  } catch (error) {
    if (error instanceof EngineUnavailable) return null;
    throw error;
  }
}

/** Locks the service of which leases are taken, and checks all that does not depend on a fork. */
async function lockParent(
  { regions }: ControlContext,
  tx: Tx,
  caller: Caller,
  region: Region,
  { from }: TakeLeasesBody,
): Promise<ServiceRow> {
  const { service: parent } = await lockOwnService(tx, caller, from);
  refuseMoved(parent, region);
  if (ALLOWED[parent.status].forkNow !== 'accept')
    throw new ApiError('INVALID_STATE', refusal('forkNow', parent.status));
  const why = region.engine.lifecycle.whyNotForked(parent.id, 'NOW');
  if (why !== null) throw new ApiError('INVALID_STATE', `from: ${why}`);
  await refuseSecondProject(tx, regions, region, caller.projectId);
  await refuseWithoutAnswer(region);
  return parent;
}

const FIRST_POLL_MS = 5;
const LAST_POLL_MS = 250;

/** Waits until leases are ready, as long as an answer may take. */
async function untilReady(db: Db, projectId: string, ids: readonly string[]): Promise<LeaseRow[]> {
  const deadlineMs = Date.now() + ANSWER_WITHIN_MS;
  for (let waitMs = FIRST_POLL_MS; ; waitMs = Math.min(waitMs * 1.5, LAST_POLL_MS)) {
    const rows = await readLeases(db, projectId, ids);
    if (rows.every(({ ready }) => ready) || Date.now() > deadlineMs) return rows;
    await sleep(waitMs);
  }
}

/** Leases as the API shows them. */
export const leaseDocument = (row: LeaseRow): Lease => ({
  id: row.id,
  project_id: row.project_id,
  from: row.parent_id,
  reset: row.reset,
  service_id: row.service_id,
  endpoint: { host: row.host, port: row.port },
  database: row.database,
  role: row.role,
  ready: row.ready,
  ...(row.problem === null ? {} : { problem: row.problem }),
  created: row.created.toISOString(),
  ...(row.created_by === null ? {} : { created_by: row.created_by }),
  ...(row.expires_at === null ? {} : { expires_at: row.expires_at.toISOString() }),
});

function answerOf(rows: readonly LeaseRow[], secrets?: ReadonlyMap<string, Secret>): Accepted {
  const leases = rows.map((row) => {
    const secret = secrets?.get(row.id);
    const more = secret === undefined ? {} : { initial_password: secret.password };
    return { ...leaseDocument(row), ...more };
  });
  return { operationId: null, doc: JSON.stringify({ leases }) };
}

/** A lease of a project. @throws ApiError NOT_FOUND */
export async function readLease(db: Db, projectId: string, id: string): Promise<LeaseRow> {
  const [found] = isId(id) ? await readLeases(db, projectId, [id]) : [];
  if (found !== undefined) return found;
  throw new ApiError(
    'NOT_FOUND',
    `no lease with that id exists: ${JSON.stringify(id.slice(0, 64))}; it may have ended; ` +
      'GET /projects/{project_id}/leases lists them',
  );
}

/**
 * Extends leases; done when it is answered. The answer has those that are still there: a runner
 * learns from it that a lease has ended.
 */
export function extendLeases(
  { store }: ControlContext,
  caller: Caller,
  { lease_ids: ids, ttl_seconds }: ExtendLeasesBody,
): Promise<Accepted> {
  return makeChange(store, caller, async (tx) => {
    const { databases, services } = await lockLeases(tx, caller, ids);
    const nowMs = Date.now();
    for (const { service, operation, isShared } of services) {
      if (isShared) continue;
      const lifetime = changedLifetime(caller, service, { ttl_seconds }, nowMs);
      await changeService(tx, service, { ...lifetime, expiry_warning_at: null }, operation);
    }
    const servers = services.filter(({ isShared }) => isShared);
    await extendDatabases(tx, caller, { databases, servers }, ttl_seconds, nowMs);
    return answerOf(await readLeases(tx, caller.projectId, ids));
  });
}

/** Returns leases. Those that have ended are left out: to return one twice does no harm. */
export function returnLeases(
  { store }: ControlContext,
  caller: Caller,
  { lease_ids: ids }: ReturnLeasesBody,
): Promise<Accepted> {
  return makeChange(store, caller, async (tx) => {
    const before = await readLeases(tx, caller.projectId, ids);
    const { databases, services } = await lockLeases(tx, caller, ids);
    for (const lease of before) refuseOfOthers(caller, lease, 'return');
    for (const { service, operation, isShared } of services) {
      if (isShared) continue;
      refuseEnd(caller, service);
      const next = await beginOperation(tx, service, 'delete', requesterOf(caller), operation);
      const request = { creates_extension: null, drops_extension: null };
      const ending = { deleting: true, purge: true, attempt: 0 };
      await changeService(tx, service, { ...request, ...ending }, next);
      await makeDue(tx, service.id);
    }
    const ended = databases.map(({ id }) => id);
    await returnLeasedDatabases(tx, ended);
    return answerOf(before);
  });
}

/** @throws ApiError NOT_FOUND */
export async function returnLease(
  context: ControlContext,
  caller: Caller,
  id: string,
): Promise<Accepted> {
  await readLease(context.store.db, caller.projectId, id);
  return returnLeases(context, caller, { lease_ids: [id] });
}

/** A service that is a lease, or whose databases are. */
type LeasedService = LockedService & { isShared: boolean };

/**
 * Locks the services of leases that have not ended, each after the other in the order of their ids.
 *
 * @returns `databases`: the leases that are databases
 * @throws ApiError FORBIDDEN where the key may not change one of them
 */
async function lockLeases(
  tx: Tx,
  caller: Caller,
  ids: readonly string[],
): Promise<{ databases: LeaseRow[]; services: LeasedService[] }> {
  const rows = await readLeases(tx, caller.projectId, ids);
  for (const lease of rows) refuseOfOthers(caller, lease, 'extend');
  const services: LeasedService[] = [];
  for (const id of [...new Set(rows.map((row) => row.service_id))].toSorted()) {
    const found = await lockService(tx, id);
    if (found === null || found.service.deleting) continue;
    services.push({ ...found, isShared: rows.every((row) => row.id !== id) });
  }
  const databases = rows.filter(({ reset }) => reset === 'database');
  return { databases, services };
}

/** @throws ApiError FORBIDDEN */
function refuseOfOthers(
  caller: Caller,
  { id, created_by: takenBy }: LeaseRow,
  change: 'extend' | 'return',
): void {
  const why = denialOfLease(caller, takenBy, change);
  if (why !== null) throw new ApiError('FORBIDDEN', `lease_ids: found ${id}; ${why}`);
}

/** A lease that was made PROD is protected like any service. @throws ApiError */
function refuseEnd(caller: Caller, service: ServiceRow): void {
  const protection = protectionOfRow(service);
  refuseByRole(caller, 'delete', protection);
  refuseUnconfirmed(caller, 'delete', service.name, protection);
}
