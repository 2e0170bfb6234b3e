/**
 * Keeps forks of services warm for their next leases. A warm fork is a service without a project,
 * like a spare: users do not see it, and it counts for none of their limits.
 */
import { forkOfNow, inheritedByFork } from '../domain/service/fork.ts';
import { isIdle, roomForWarm, warmFor, type LeaseRoom } from '../domain/service/lease.ts';
import { EngineUnavailable, type Leasing } from '../engine/engine.ts';
import { NoPortLeft } from '../engine/spec.ts';
import type { Region } from '../engine/regions.ts';
import { newPassword } from '../lib/ids.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import { scramVerifier } from '../lib/scram.ts';
import type { Store } from '../store/database.ts';
import {
  countPromisedPorts,
  forgetDemand,
  insertLeasedServer,
  isMaking,
  isWarm,
  listDemands,
  listWarm,
  noteCommitted,
  type Demand,
  type Warm,
} from '../store/leased-servers.ts';
import { makeDue } from '../store/claims.ts';
import { insertServiceAtEndpoint } from '../store/new-services.ts';
import { changeService, lockService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';

/** Forks that are made at the same time: clients that connect have the machine first. */
const MAKING_AT_ONCE = 4;

type Context = Readonly<{ store: Store; region: Region; leasing: Leasing }>;

export function createWarmForks(store: Store, region: Region, log: Log, rounds: Rounds) {
  const { leasing } = region.engine;
  return rounds.every(
    'warmForks',
    async (closing) => {
      if (leasing !== null) await keepWarmForks({ store, region, leasing }, closing);
    },
    log,
  );
}

async function keepWarmForks(context: Context, closing: AbortSignal): Promise<void> {
  const { store, region } = context;
  const warm = await listWarm(store.db, region.code);
  const demands = await listDemands(store.db, region.code);
  if (warm.length === 0 && demands.length === 0) return;
  const demanded = new Set(demands.map(({ parentId }) => parentId));
  const room = roomForWarm(await readRoom(context));
  const orphans = warm.filter(({ parentId }) => !demanded.has(parentId));
  // The oldest go first where services of users need the room.
  const most = Math.max(0, warm.length + Math.min(0, room));
  for (const { id } of new Set([...orphans, ...warm.slice(0, warm.length - most)]))
    await removeFork(context, id);
  const left = { room: Math.max(0, room) };
  for (const demand of demands) {
    if (closing.aborted) return;
    const own = warm.filter(({ parentId }) => parentId === demand.parentId).slice(-most);
    await keepFor(context, demand, own, left);
  }
}

async function readRoom({ store, region, leasing }: Context): Promise<LeaseRoom> {
  const [first, last] = region.portRange;
  const ports = last - first + 1;
  const disk = region.engine.storage.disk;
  return {
    ...leasing.memory(),
    ports,
    freePorts: ports - (await countPromisedPorts(store.db, region.code)),
    diskUsedPercent: disk === null ? null : (await disk()).usedPercent,
  };
}

/** Replaces the forks of a service that lack commits, and adds those that are missing. */
async function keepFor(
  context: Context,
  demand: Demand,
  own: readonly Warm[],
  left: { room: number },
): Promise<void> {
  const { store, region } = context;
  const nowMs = Date.now();
  if (demand.isOver || isIdle(demand, nowMs)) {
    for (const { id } of own) await removeFork(context, id);
    return forgetDemand(store.db, demand);
  }
  const committed = demand.canFork ? await committedOf(context, demand.parentId) : null;
  if (committed === null) return;
  if (committed !== demand.committed) await noteCommitted(store.db, demand.parentId, committed);
  const isUsable = (one: Warm) => one.committed === committed && one.isLikeParent;
  for (const { id } of own.filter((one) => !isUsable(one))) await removeFork(context, id);
  const usable = own.filter(isUsable);
  const wanted = warmFor(demand, nowMs);
  for (const { id } of usable.slice(wanted)) await removeFork(context, id);
  // A service that is written to all the time would have each fork replaced at once.
  if (committed !== demand.committed || (await isMaking(store.db, region.code))) return;
  const making = usable.filter(({ isReady }) => !isReady).length;
  const missing = Math.min(wanted - usable.length, MAKING_AT_ONCE - making, left.room);
  for (let n = 0; n < missing; n++) {
    await addFork(context, demand.parentId, committed);
    left.room -= 1;
  }
}

/** null: the service does not answer now. */
async function committedOf({ leasing }: Context, id: string): Promise<string | null> {
  try {
    return await leasing.committed(id);
  } catch (error) {
    if (error instanceof EngineUnavailable) return null;
    throw error;
  }
}

/**
 * Adds a fork of a service, unless no port is left.
 *
 * @param committed what the service had committed, at least, when the fork is made
 */
async function addFork(context: Context, parentId: string, committed: string): Promise<void> {
  try {
    await context.store.db
      .transaction()
      .execute((tx) => insertWarmFork(context, tx, parentId, committed));
  } catch (error) {
    if (!(error instanceof NoPortLeft)) throw error;
  }
}

async function insertWarmFork(
  { region }: Context,
  tx: Tx,
  parentId: string,
  committed: string,
): Promise<void> {
  const parent = (await lockService(tx, parentId))?.service;
  if (parent === undefined || parent.project_id === null || parent.status !== 'READY') return;
  const fork = await insertServiceAtEndpoint(tx, region, forkOfNow(parent));
  await insertLeasedServer(tx, { id: fork.id, parent: parentId, committed });
  // Until it is taken, nobody knows its password, and that of its parent opens it no more.
  const first_verifier = await scramVerifier(newPassword());
  await changeService(tx, fork, { ...inheritedByFork(parent), first_verifier }, null);
  await makeDue(tx, fork.id);
}

/** Removes a warm fork, unless it was taken meanwhile. */
async function removeFork({ store }: Context, id: string): Promise<void> {
  await store.db.transaction().execute(async (tx) => {
    const locked = await lockService(tx, id);
    if (locked === null || !(await isWarm(tx, id))) return;
    await changeService(tx, locked.service, { deleting: true }, null);
    await makeDue(tx, id);
  });
}
