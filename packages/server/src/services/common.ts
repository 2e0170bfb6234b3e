/** Shared by the calls on services and on read replica sets. */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError, parseSize, type Size, type SizeInput } from '@howdah/contract';
import { DISK_FULL_PERCENT } from '../domain/disk.ts';
import { whyNoDisk, whyNoRoom } from '../domain/service/capacity.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { NoPortLeft, type Listener, type Endpoint } from '../engine/spec.ts';
import { EngineUnavailable, type DiskUsage, type Engine } from '../engine/engine.ts';
import type { Region, Regions } from '../engine/regions.ts';
import type { Store } from '../store/database.ts';
import type { Db, Tx } from '../store/tables.ts';
import { howItGoes } from '../store/operations.ts';
import { createPortLedger, isAnotherProjectOutside } from '../store/regions.ts';
import { amendAnswer, type Caller, type Outcome } from './change.ts';
import type { ReadLimit } from './read-limit.ts';

/** A change that was waited for. */
export type Done = Outcome & { message: string };

/** Has the engine choose an endpoint. The caller reserves it in the same transaction. */
export async function reserveEndpoint(
  tx: Tx,
  region: Region,
  listener: Listener,
): Promise<Endpoint> {
  try {
    return await region.engine.addresses.reserve(createPortLedger(tx, region), listener);
  } catch (error) {
    if (error instanceof NoPortLeft) throw new ApiError('LIMIT_EXCEEDED', error.message);
    throw error;
  }
}

/** How full the disk of a region is; null: its services have none in common. */
export const readDisk = async ({ storage }: Pick<Engine, 'storage'>): Promise<DiskUsage | null> =>
  storage.disk === null ? null : storage.disk();

/**
 * Refuses new things on a nearly full disk, whose space existing services need.
 *
 * @param what is refused, in the plural
 */
export async function refuseFullDisk({ engine }: Region, what: string): Promise<void> {
  const usage = await readDisk(engine);
  if (usage === null || usage.usedPercent < DISK_FULL_PERCENT) return;
  const { usedPercent, freeBytes, totalBytes } = usage;
  const gb = (bytes: number) => (bytes / 1e9).toFixed(1);
  throw new ApiError(
    'LIMIT_EXCEEDED',
    `the disk of the services is ${usedPercent.toFixed(1)} % full ` +
      `(${gb(freeBytes)} of ${gb(totalBytes)} GB free); ` +
      `no ${what} are made from ${DISK_FULL_PERCENT} % on: ` +
      'purge services (howdah service purge NAME) or make space on it',
  );
}

/**
 * Refuses a second project if all services run as one operating system user and the operator
 * allows one project only. Services of regions that are switched off count: they run as that user.
 */
export async function refuseSecondProject(
  tx: Tx,
  regions: Regions,
  region: Region,
  projectId: string,
): Promise<void> {
  if (!isShared(region)) return;
  const others = regions.all.filter((one) => !isShared(one)).map(({ code }) => code);
  if (!(await isAnotherProjectOutside(tx, others, projectId))) return;
  const { note } = region.engine.capabilities.isolation;
  throw new ApiError(
    'UNAVAILABLE_HERE',
    'another project has services here, and HOWDAH_SINGLE_PROJECT=yes allows no second one ' +
      `while ${note}. Run Howdah as root, so that each service has an operating system user ` +
      'of its own, or use another installation',
  );
}

/** Whether services run as one operating system user, which one project alone may use. */
function isShared({ engine, singleProject }: Region): boolean {
  return singleProject && !engine.capabilities.isolation.isolated;
}

/** The size in a request. */
type AskedSize = { cpu_millis?: SizeInput; memory_gbs?: SizeInput };
type SizeRules = Parameters<typeof parseSize>[2];

/** @throws ApiError INVALID_REQUEST */
export function readSize(
  { cpu_millis: cpuMillis, memory_gbs: memoryGbs }: AskedSize,
  rules: SizeRules,
): Size {
  const parsed = parseSize(cpuMillis, memoryGbs, rules);
  if ('problem' in parsed) throw new ApiError('INVALID_REQUEST', parsed.problem);
  return parsed.size;
}

/**
 * The size of a new server. A size that is not in the request is a default, or that of a parent,
 * and is not refused for want of room.
 *
 * @throws ApiError INVALID_REQUEST; UNAVAILABLE_HERE when it has no room and is not forced
 */
export function sizeOrRefuse(
  region: Region,
  caller: Pick<Caller, 'force'>,
  asked: AskedSize,
  rules: SizeRules,
): Size {
  const size = readSize(asked, rules);
  const isAsked = asked.cpu_millis !== undefined || asked.memory_gbs !== undefined;
  if (isAsked) refuseWithoutRoom(region, caller, size);
  return size;
}

/** @throws ApiError UNAVAILABLE_HERE when a size has no room in a region and is not forced */
export function refuseWithoutRoom(
  { code, engine }: Region,
  { force }: Pick<Caller, 'force'>,
  size: Size,
): void {
  const why = force ? null : whyNoRoom(size, engine.capabilities.room, code);
  if (why !== null) throw new ApiError('UNAVAILABLE_HERE', why);
}

/**
 * Refuses a quota that the whole disk could not hold.
 *
 * @param asked the quota in a request; undefined: it has none
 * @throws ApiError UNAVAILABLE_HERE
 */
export async function refuseLargeQuota(
  { code, engine }: Region,
  { force }: Pick<Caller, 'force'>,
  asked: number | undefined,
): Promise<void> {
  if (asked === undefined || force) return;
  const usage = await readDisk(engine);
  const why = usage === null ? null : whyNoDisk(asked, usage.totalBytes, code);
  if (why !== null) throw new ApiError('UNAVAILABLE_HERE', why);
}

/**
 * The change that enables a pooler. If it was enabled before, it is where it was.
 *
 * @throws ApiError INVALID_STATE when the users of the service have taken the name of its role
 */
export async function poolerColumns(
  region: Region,
  { id, host, pooler_port: port, status, parent_id: parent }: ServiceRow,
  tx: Tx,
): Promise<ServiceChange> {
  if (status === 'READY') {
    // The operation asks a server again that does not answer now, and shows why it does not.
    const why = await region.engine.sql.whyNoPooler(parent ?? id).catch((error: unknown) => {
      if (error instanceof EngineUnavailable) return null;
      throw error;
    });
    if (why !== null) throw new ApiError('INVALID_STATE', `cannot enablePooler: ${why}`);
  }
  if (port !== null) return { pooler: true };
  const endpoint = await reserveEndpoint(tx, region, { id, poolerOf: host });
  return {
    pooler: true,
    pooler_port: endpoint.port,
    pooler_host: endpoint.host === host ? null : endpoint.host,
  };
}

/**
 * How long an answer waits for the effect of its change: less than clients and proxies wait for
 * answers. The change goes on after that.
 */
export const ANSWER_WITHIN_MS = 20_000;
/** The interval of its polls. */
const DONE_POLL_MS = 10;

/**
 * Waits for a change that is answered with 200, not 202: it is done then, or the message says
 * that it takes longer.
 */
export async function untilDone(
  store: Store,
  caller: Caller,
  { operationId }: Outcome,
  message: string,
): Promise<Done> {
  const done = await howItWent(store.db, operationId, message);
  await amendAnswer(store, caller, done);
  return done;
}

async function howItWent(db: Db, operationId: string | null, message: string): Promise<Done> {
  const deadlineMs = Date.now() + ANSWER_WITHIN_MS;
  for (;;) {
    const how = operationId === null ? 'done' : await howItGoes(db, operationId);
    if (how === 'done') return { message, operationId };
    if (how === 'failing' || Date.now() > deadlineMs) {
      return {
        message:
          'accepted, and not done yet: ' +
          `GET /projects/{project_id}/operations/${operationId} shows its progress`,
        operationId,
      };
    }
    await sleep(DONE_POLL_MS);
  }
}

/** The context of every call: the metadata database and the regions. */
export type ControlContext = {
  store: Store;
  regions: Regions;
  /** Limits the number of simultaneous reads of logs. */
  logReads: ReadLimit;
};
