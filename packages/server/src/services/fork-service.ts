/** Forks services. */
import { ALLOWED, ApiError, type Backups, type ForkBody, refusal } from '@howdah/contract';
import { inheritedByFork } from '../domain/service/fork.ts';
import { chooseRepository } from '../domain/service/fork-source.ts';
import { lifetimeOfNew } from '../domain/service/lifetime.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { sizeOf } from '../domain/service/spec.ts';
import type { Region, Regions } from '../engine/regions.ts';
import { whyNotConverted } from '../engine/upgrades.ts';
import { statesInRepositories } from '../engine/off-machine.ts';
import type { Origin } from '../engine/spec.ts';
import { newPassword } from '../lib/ids.ts';
import { parseMoment } from '../lib/moment.ts';
import { scramVerifier } from '../lib/scram.ts';
import { type Caller, makeChange } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { refuseFullDisk, refuseLargeQuota, sizeOrRefuse } from './room.ts';
import { refuseSecondProject } from './single-project.ts';
import {
  cpuBoundOrRefuse,
  type Accepted,
  lockOwnService,
  refuseMoved,
  refuseWithoutAnswer,
  readUsedStorageGb,
  storageOrRefuse,
  nameOfFork,
  refuseUsedName,
} from './service-rules.ts';
import { refuseWithoutPort } from './endpoints.ts';
import { autoSuspendOfNew } from './auto-suspend.ts';
import { keepWithinKey } from './lifetimes.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { keepNotCarried } from './not-carried.ts';
import { refuseImpossible, regionOrRefuse } from './regions.ts';
import { useAllowList } from './allow-lists.ts';
import { joinVpc } from './vpcs.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation } from '../store/operations.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import { insertServiceAtEndpoint } from '../store/new-services.ts';
import { changeService, readUpgrades } from '../store/services.ts';
import type { Db, Tx } from '../store/tables.ts';

/** Forks a service within its region. */
export async function forkService(
  context: ControlContext,
  caller: Caller,
  { key: parentId, region_code }: ServicePlace,
  body: ForkBody,
): Promise<Accepted> {
  const { regions, store } = context;
  const region = regions.of(region_code);
  refuseOtherRegion(regions, region, body.region_code);
  const action = body.fork_strategy === 'NOW' ? 'forkNow' : 'forkPast';
  const field = `fork_strategy ${body.fork_strategy}`;
  refuseImpossible(region, action, field);
  const origin: Origin = {
    parent: parentId,
    strategy: body.fork_strategy,
    ...(await targetOfFork(context, region, parentId, body)),
  };
  await refuseFullDisk(region, 'forks');
  await refuseLargeQuota(region, caller, body.storage_gb);
  const environment = body.environment_tag ?? 'DEV';
  const lifetime = lifetimeOfNew(caller, body, environment);
  const usedGb = await readUsedStorageGb(region, parentId);
  const initialPassword = newPassword();
  const verifier = await scramVerifier(initialPassword);
  return makeChange(store, caller, async (tx) => {
    const { service: parent } = await lockOwnService(tx, caller, parentId);
    refuseMoved(parent, region);
    if (ALLOWED[parent.status][action] !== 'accept')
      throw new ApiError('INVALID_STATE', refusal(action, parent.status));
    const why = region.engine.lifecycle.whyNotForked(parentId, body.fork_strategy);
    if (why !== null) throw new ApiError('INVALID_STATE', `${field}: ${why}`);
    const fallback = sizeOf(parent);
    const size = sizeOrRefuse(region, caller, body, { fallback, sharedAllowed: true });
    await refuseSecondProject(tx, regions, region, caller.projectId);
    const name = body.name ?? (await nameOfFork(tx, caller.projectId, parent.name));
    await refuseUsedName(tx, caller.projectId, name, body.unique_name);
    await keepWithinKey(tx, caller);
    await keepWithinLimits(tx, caller.projectId, { services: 1, ...weightOf(size, 1) });
    const { addons } = parent;
    const major = majorOfFork(region, parent, body);
    await refuseWithoutAnswer(region);
    const spec = { addons, major, size, origin };
    const fresh = await refuseWithoutPort(insertServiceAtEndpoint(tx, region, spec));
    const subject = { id: fresh.id, project_id: caller.projectId };
    const operation = await beginOperation(tx, subject, 'fork', caller, null);
    const change = {
      project_id: caller.projectId,
      region_alias: parent.region_alias,
      name,
      environment,
      created: new Date(),
      created_by: caller.publicKey,
      ...lifetime,
      first_verifier: verifier,
      ...inheritedByFork(parent),
      storage_gb: storageOrRefuse(body.storage_gb ?? parent.storage_gb, usedGb),
      cpu_bound: cpuBoundOrRefuse(region, caller, body.cpu_bound, parent.cpu_bound),
    };
    const network = await networkOfFork(tx, region, caller, fresh, parent);
    const made = { ...fresh, ...network, environment };
    const { auto_suspend_seconds: asked } = body;
    const auto_suspend_seconds = autoSuspendOfNew(region, caller, asked, made, parent);
    const leaving = {
      kind: 'fork',
      strategy: body.fork_strategy,
      environment,
      newMajor: major === parent.pg_version ? null : major,
      sleeps: auto_suspend_seconds !== null || asked === null,
      place: region.engine.moves.place,
    } as const;
    await keepNotCarried(tx, operation.id, leaving, parent);
    const changed = { ...change, ...network, auto_suspend_seconds };
    const row = await changeService(tx, fresh, changed, operation);
    await makeDue(tx, row.id);
    return { doc: row.doc, operationId: operation.id, initialPassword };
  });
}

/** The networks of a fork: a copy must be as private as its parent. */
export async function networkOfFork(
  tx: Tx,
  region: Region,
  { projectId }: Caller,
  fresh: ServiceRow,
  parent: ServiceRow,
): Promise<ServiceChange> {
  const { vpc_id: vpc, allow_list_id: list } = parent;
  return {
    ...(vpc === null ? {} : await joinVpc(tx, region, projectId, fresh, vpc)),
    ...(list === null ? {} : await useAllowList(tx, projectId, parent, list)),
  };
}

/** A fork shares the files of its parent. */
function refuseOtherRegion(regions: Regions, own: Region, asked: string | undefined): void {
  if (asked === undefined || regionOrRefuse(regions, asked).region === own) return;
  throw new ApiError(
    'INVALID_REQUEST',
    `region_code: found ${JSON.stringify(asked)}; ` +
      `a fork is in the region of its parent, ${own.code}: leave the field out`,
  );
}

/** The major version of a fork: that of its parent, or a newer one that the data is copied into. */
function majorOfFork(
  { engine }: Region,
  { pg_version: own, addons }: ServiceRow,
  { pg_version: asked, fork_strategy: strategy }: ForkBody,
): number | null {
  if (asked === undefined || own === null || Number(asked) === own) return own;
  if (Number(asked) < own)
    throw new ApiError(
      'INVALID_REQUEST',
      `pg_version: found ${JSON.stringify(asked)}; ` +
        `a fork has the version of its parent, ${own}, or a newer one`,
    );
  if (strategy === 'PITR')
    throw new ApiError(
      'INVALID_REQUEST',
      `pg_version: found ${JSON.stringify(asked)} with the strategy PITR; such a fork has ` +
        `the version of its parent, ${own}: fork it again to ${asked} with the strategy NOW`,
    );
  const why = whyNotConverted(engine.upgrades, addons, Number(asked));
  if (why !== null) throw new ApiError('UNAVAILABLE_HERE', `pg_version: ${why}`);
  return Number(asked);
}

/** An upgrade sets the snapshots and the WAL from before it aside: it says so where it matters. */
async function withReason(db: Db, parentId: string, error: unknown): Promise<unknown> {
  if (!(error instanceof ApiError) || error.code !== 'INVALID_REQUEST') return error;
  const { upgraded } = await readUpgrades(db, parentId);
  if (upgraded === null || upgraded.from === null || upgraded.at === null) return error;
  return new ApiError(
    'INVALID_REQUEST',
    `${error.message}; the service was upgraded from PostgreSQL ${upgraded.from} at ` +
      `${upgraded.at}, and points in time before that come back only by undoing the upgrade`,
    error.details,
  );
}

/**
 * Checks the target time of a fork against the window of its parent's backups, here and in
 * repositories; null: not a fork to a point in time.
 *
 * @throws ApiError INVALID_REQUEST
 */
export async function targetOfFork(
  { store }: Pick<ControlContext, 'store'>,
  region: Region,
  parentId: string,
  asked: Pick<ForkBody, 'fork_strategy' | 'target_time'>,
): Promise<Pick<Origin, 'targetTime' | 'repository'>> {
  try {
    return await targetInWindow(region, parentId, asked);
  } catch (error) {
    throw await withReason(store.db, parentId, error);
  }
}

async function targetInWindow(
  { engine }: Region,
  parentId: string,
  body: Pick<ForkBody, 'fork_strategy' | 'target_time'>,
): Promise<Pick<Origin, 'targetTime' | 'repository'>> {
  if (body.fork_strategy !== 'PITR') {
    if (body.target_time === undefined) return { targetTime: null };
    throw new ApiError(
      'INVALID_REQUEST',
      `target_time: found with the strategy ${body.fork_strategy}; it goes with PITR only`,
    );
  }
  const moment = parseMoment(body.target_time ?? '');
  if (moment === null) {
    throw new ApiError(
      'INVALID_REQUEST',
      `target_time: found ${JSON.stringify(body.target_time ?? null)}; ` +
        'PITR takes a date-time with an offset, like 2026-01-31T12:00:00.123456Z',
    );
  }
  const askedMs = Date.now();
  const { text: targetTime, ms } = moment;
  const { window } = await engine.backups.describe(parentId);
  const [earliestMs, latestMs] = [
    Date.parse(window.earliest ?? ''),
    Date.parse(window.latest ?? ''),
  ];
  // A client's clock may be ahead. Only a window that ends now may be exceeded: after a gap the
  // data is not there.
  const skewMs = latestMs >= askedMs ? CLOCK_SKEW_MS : 0;
  const gap = window.gaps?.find(
    ({ after, before }) => ms > Date.parse(after) && ms < Date.parse(before),
  );
  const isOutside = !(ms >= earliestMs && ms <= latestMs + skewMs);
  if (isOutside || gap !== undefined) {
    const repository = chooseRepository(
      await statesInRepositories(engine.offMachine, parentId),
      ms,
    );
    if (repository !== null) return { targetTime, repository };
  }
  if (isOutside) {
    throw new ApiError(
      'INVALID_REQUEST',
      `target_time: ${body.target_time} is outside the window that can be reached: ` +
        describeWindow(window),
      { window },
    );
  }
  if (gap !== undefined) {
    throw new ApiError(
      'INVALID_REQUEST',
      `target_time: ${body.target_time} is in a gap of the window: ` +
        `a WAL file is missing from the archive, and nothing between ${gap.after} and ` +
        `${gap.before} can be reached; allowed: ${describeWindow(window)}`,
      { window },
    );
  }
  return { targetTime: ms > latestMs ? window.latest : targetTime };
}

/** How far a client's clock may be ahead. */
const CLOCK_SKEW_MS = 5000;

/** The restorable parts of a window, in words. */
function describeWindow({ earliest, latest, gaps = [] }: Backups['window']): string {
  if (earliest === null) return 'none yet';
  return (
    `${earliest} to ` +
    `${gaps.map(({ after, before }) => `${after}, ${before} to `).join('')}${latest}`
  );
}
