/** Leases: forks of a service that are taken for tests, extended and returned. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ALLOWED,
  ApiError,
  isId,
  refusal,
  type ExtendLeasesBody,
  type Lease,
  type ReturnLeasesBody,
  type TakeLeasesBody,
} from '@howdah/contract';
import { defaultLeaseTtl } from '../domain/service/lease.ts';
import { changedLifetime, lifetimeOfNew } from '../domain/service/lifetime.ts';
import type { ServiceRow } from '../domain/service/row.ts';
import { protectionOfRow, sizeOf } from '../domain/service/spec.ts';
import { EngineUnavailable } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import { newPassword } from '../lib/ids.ts';
import { scramVerifier } from '../lib/scram.ts';
import { insertLeasedServer, lockWarm, noteDemand, readLeases } from '../store/leased-servers.ts';
import { makeDue } from '../store/leases.ts';
import { beginOperation, recordOperation, type Requester } from '../store/operations.ts';
import { changeService, lockService, readPlace } from '../store/services.ts';
import type { Db, LeaseRow, Tx } from '../store/tables.ts';
import { amendAnswer, makeChange, type Caller } from './change.ts';
import { ANSWER_WITHIN_MS } from './completion.ts';
import type { ControlContext } from './control-context.ts';
import { insertServiceAtEndpoint } from './create-service.ts';
import { networkOfFork } from './fork-service.ts';
import { keepWithinKey } from './lifetimes.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
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

/** A new password, and what the server gets of it. */
type Secret = Readonly<{ password: string; verifier: string }>;

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
  const secrets = await Promise.all(Array.from({ length: body.count ?? 1 }, newSecret));
  const taken = new Map<string, Secret>();
  await makeChange(store, caller, async (tx) => {
    const parent = await lockParent(context, tx, caller, region, body);
    const warm = await openWarm(tx, region, caller, { parentId: parent.id, committed, secrets });
    for (const [n, secret] of secrets.entries()) {
      const isWarm = warm[n] != null;
      const fork = warm[n] ?? (await insertFork(tx, region, parent));
      await takeFork(tx, region, caller, { parent, fork, isWarm, secret, body });
      taken.set(fork.id, secret);
    }
    await noteDemand(tx, parent.id, committed);
    return answerOf(await readLeases(tx, caller.projectId, [...taken.keys()]), taken);
  });
  const rows = await untilReady(store.db, caller.projectId, [...taken.keys()]);
  const answer = answerOf(rows, taken);
  await amendAnswer(store, caller, answer);
  return answer;
}

const newSecret = async (): Promise<Secret> => {
  const password = newPassword();
  return { password, verifier: await scramVerifier(password) };
};

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
      `${region.code}; fork it (howdah service fork ${id} --ttl 10m), or take leases of a service ` +
      'of another region',
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
  { from, count = 1 }: TakeLeasesBody,
): Promise<ServiceRow> {
  const { service: parent } = await lockOwnService(tx, caller, from);
  refuseMoved(parent, region);
  if (ALLOWED[parent.status].forkNow !== 'accept')
    throw new ApiError('INVALID_STATE', refusal('forkNow', parent.status));
  const why = region.engine.lifecycle.whyNotForked(parent.id, 'NOW');
  if (why !== null) throw new ApiError('INVALID_STATE', `from: ${why}`);
  await refuseSecondProject(tx, regions, region, caller.projectId);
  await keepWithinKey(tx, caller, count);
  const weight = weightOf(sizeOf(parent), count);
  await keepWithinLimits(tx, caller.projectId, { services: count, ...weight });
  await refuseWithoutAnswer(region);
  return parent;
}

/**
 * Locks warm forks and gives them the passwords of their leases. If that is not committed, nobody
 * knows their passwords, as before.
 *
 * @returns for each secret a fork; null: none was warm, or it did not answer
 */
async function openWarm(
  tx: Tx,
  { engine }: Region,
  { dryRun }: Caller,
  of: { parentId: string; committed: string | null; secrets: readonly Secret[] },
): Promise<(ServiceRow | null)[]> {
  const { parentId, committed, secrets } = of;
  if (committed === null) return [];
  const warm = await lockWarm(tx, parentId, committed, secrets.length);
  return Promise.all(
    secrets.map(async ({ verifier }, n) => {
      const fork = warm[n];
      if (fork === undefined) return null;
      try {
        if (!dryRun) await engine.leasing?.setUnusedPassword(fork.id, verifier);
        return fork;
      } catch (error) {
        if (error instanceof EngineUnavailable) return null;
        throw error;
      }
    }),
  );
}

/** A fork that is made for a lease: none was warm. */
async function insertFork(tx: Tx, region: Region, parent: ServiceRow): Promise<ServiceRow> {
  const { id, addons, pg_version: major } = parent;
  const origin = { parent: id, strategy: 'NOW', targetTime: null } as const;
  const size = sizeOf(parent);
  const fork = await insertServiceAtEndpoint(region, tx, { addons, major, size, origin });
  await insertLeasedServer(tx, { id: fork.id, parent: id, committed: null });
  return fork;
}

/**
 * Gives a fork to the caller: a service of theirs, with a password and an end. A warm one is ready
 * with that.
 */
async function takeFork(
  tx: Tx,
  region: Region,
  caller: Caller,
  taking: { parent: ServiceRow; fork: ServiceRow; isWarm: boolean } & Asked,
): Promise<void> {
  const { parent, fork, isWarm, secret, body } = taking;
  const { projectId, publicKey } = caller;
  const of = { id: fork.id, project_id: projectId };
  const ttl_seconds = body.ttl_seconds ?? defaultLeaseTtl(caller.bounds);
  const change = {
    project_id: projectId,
    region_alias: parent.region_alias,
    name: nameOfLease(parent.name, fork.id),
    created: new Date(),
    created_by: publicKey,
    ...lifetimeOfNew(caller, { ttl_seconds, purge_on_expiry: true }, 'DEV'),
    // Each lease ends within minutes: nobody is to be warned of that.
    expiry_warning_at: null,
    first_verifier: secret.verifier,
    preload: parent.preload,
    storage_gb: parent.storage_gb,
    cpu_bound: parent.cpu_bound,
  };
  if (isWarm) {
    await recordOperation(tx, of, 'fork', requesterOf(caller));
    await changeService(tx, fork, change, null);
    return;
  }
  const operation = await beginOperation(tx, of, 'fork', requesterOf(caller), null);
  const network = await networkOfFork(tx, region, caller, fork, parent);
  await changeService(tx, fork, { ...change, ...network }, operation);
  await makeDue(tx, fork.id);
}

type Asked = Readonly<{ secret: Secret; body: TakeLeasesBody }>;

/**
 * The requester of the next operation of a call. Each operation has an entry in the audit log: the
 * first one that of the call, each further one a copy.
 */
function requesterOf({ publicKey, audit }: Caller): Requester {
  if (audit === null || !audit.recorded) return { publicKey, audit };
  const facts = { ...audit.facts, request_id: randomUUID() };
  return { publicKey, audit: { facts, recorded: false } };
}

/** The name of the service of a lease, which no other service has. */
const nameOfLease = (parent: string, id: string): string =>
  `${[...parent].slice(0, NAME_OF_PARENT).join('')}-lease-${id}`;

const NAME_OF_PARENT = 100;

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
    const rows = await lockLeases(tx, caller, ids);
    for (const { service, operation } of rows) {
      const lifetime = changedLifetime(caller, service, { ttl_seconds }, Date.now());
      await changeService(tx, service, { ...lifetime, expiry_warning_at: null }, operation);
    }
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
    for (const { service, operation } of await lockLeases(tx, caller, ids)) {
      const next = await beginOperation(tx, service, 'delete', requesterOf(caller), operation);
      const request = { creates_extension: null, drops_extension: null };
      const ending = { deleting: true, purge: true, attempt: 0 };
      await changeService(tx, service, { ...request, ...ending }, next);
      await makeDue(tx, service.id);
    }
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

/**
 * Locks the services of leases that have not ended, each after the other in the order of their ids.
 *
 * @throws ApiError FORBIDDEN where the key may not change one of them
 */
async function lockLeases(tx: Tx, caller: Caller, ids: readonly string[]) {
  const rows = await readLeases(tx, caller.projectId, ids);
  const locked = [];
  for (const { id } of rows.toSorted((a, b) => (a.id < b.id ? -1 : 1))) {
    const found = await lockService(tx, id);
    if (found === null || found.service.deleting) continue;
    const { name, created_by: maker } = found.service;
    if (caller.forkOnly && maker !== caller.publicKey)
      throw new ApiError(
        'FORBIDDEN',
        `lease_ids: ${id} was taken by another key, and this key is fork_only: it extends and ` +
          'returns leases that it took',
      );
    const protection = protectionOfRow(found.service);
    refuseByRole(caller, 'delete', protection);
    refuseUnconfirmed(caller, 'delete', name, protection);
    locked.push(found);
  }
  return locked;
}
