/** Resets a fork: it gets the data of its parent again, in its place. */
import { ApiError, type ResetBody } from '@howdah/contract';
import { NO_FORK, whyNotReset } from '../domain/service/reset.ts';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import type { Region } from '../engine/regions.ts';
import type { Origin } from '../engine/spec.ts';
import { newId } from '../lib/ids.ts';
import { isShared } from '../store/leased-servers.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import { readService } from '../store/services.ts';
import type { Db, Tx } from '../store/tables.ts';
import type { Caller } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { refuseFullDisk } from './room.ts';
import { targetOfFork } from './fork-service.ts';
import { type Accepted, changeUnderRules, readUsedStorageGb } from './service-rules.ts';
import { refuseWhileUsed } from './upgrade-service.ts';

/** Resets a fork to a state of its parent. Nothing but its data changes. */
export async function resetService(
  context: ControlContext,
  caller: Caller,
  place: ServicePlace,
  body: ResetBody,
): Promise<Accepted> {
  const { key: id, region_code: code } = place;
  const region = context.regions.of(code);
  // Whether the caller may reset it at all is said first, by the rules of every change.
  const prepared = await prepare(context, caller, region, id, body).catch((error: unknown) => {
    if (error instanceof ApiError) return error;
    throw error;
  });
  const decide = async (service: ServiceRow, tx: Tx): Promise<ServiceChange> => {
    if (prepared instanceof ApiError) throw prepared;
    const { origin, usedGb } = prepared;
    const parent = await parentOrRefuse(tx, caller, service, usedGb, origin.strategy === 'NOW');
    await refuseWhileUsed(tx, id);
    const to = service.pg_version ?? (await region.engine.lifecycle.majorOf(id));
    if (to === null) throw refused('it has no data');
    return {
      upgrade: { id: newId(), to, undo: false, problem: null, reset: origin },
      // Extensions in the data may need a library that the parent has got meanwhile.
      preload: [...new Set([...service.preload, ...parent.preload])],
      power: 'running',
    };
  };
  return changeUnderRules(context, caller, id, 'reset', decide, 'reset', {
    ...(prepared instanceof ApiError ? {} : { note: describe(prepared.origin) }),
    leaving: { kind: 'reset' },
  });
}

/** The state that a fork is reset to. `usedGb`: the disk space of the data of the parent. */
type Prepared = { readonly origin: Origin; readonly usedGb: number };

/** @throws ApiError with the reason why the service is not reset to this state */
async function prepare(
  context: ControlContext,
  caller: Caller,
  region: Region,
  id: string,
  body: ResetBody,
): Promise<Prepared> {
  const { db } = context.store;
  const service = await readService(db, id);
  const parentId = service?.origin?.parent;
  if (service === null || parentId === undefined) throw refused(NO_FORK);
  const usedGb = await readUsedStorageGb(region, parentId);
  // A reason against any reset comes before a reason against this state.
  await parentOrRefuse(db, caller, service, usedGb, (body.target ?? 'NOW') === 'NOW');
  const origin = await originOfReset(context, region, id, parentId, body);
  const why = region.engine.lifecycle.whyNotForked(parentId, origin.strategy);
  if (why !== null) throw refused(why);
  await refuseFullDisk(region, 'resets');
  return { origin, usedGb };
}

async function parentOrRefuse(
  db: Db,
  { projectId }: Caller,
  service: ServiceRow,
  usedGb: number,
  isNow: boolean,
): Promise<ServiceRow> {
  const row = service.origin === null ? null : await readService(db, service.origin.parent);
  const parent = row?.project_id === projectId ? row : null;
  const asked = { ...service, isShared: await isShared(db, service.id) };
  const why = whyNotReset(asked, parent === null ? null : { ...parent, usedGb }, isNow);
  if (why !== null || parent === null) throw refused(why ?? NO_FORK);
  return parent;
}

const refused = (why: string): ApiError => new ApiError('INVALID_STATE', `cannot reset: ${why}`);

const describe = ({ parent, targetTime }: Origin): string =>
  `its data is replaced by that of its parent ${parent}, as it ` +
  `${targetTime === null ? 'is now' : `was at ${targetTime}`}; what was written to the fork is ` +
  'lost. Its id, endpoint, password, size and end stay.';

async function originOfReset(
  context: ControlContext,
  region: Region,
  id: string,
  parent: string,
  { target = 'NOW', target_time: time }: ResetBody,
): Promise<Origin> {
  const asked = time === undefined ? {} : { target_time: time };
  switch (target) {
    case 'NOW':
    case 'PITR': {
      const state = await targetOfFork(context, region, parent, {
        fork_strategy: target,
        ...asked,
      });
      return { parent, strategy: target, ...state };
    }
    case 'BEGINNING':
      if (time !== undefined)
        throw new ApiError(
          'INVALID_REQUEST',
          'target_time: found with the target BEGINNING; it goes with PITR only',
        );
      return { parent, strategy: 'PITR', ...(await beginningOf(context, region, id, parent)) };
  }
}

/**
 * The state of the parent that a fork was made with.
 *
 * @throws ApiError INVALID_STATE when it cannot be reached, with the choices that are left
 */
async function beginningOf(
  context: ControlContext,
  region: Region,
  id: string,
  parent: string,
): Promise<Pick<Origin, 'targetTime' | 'repository'>> {
  const choices = 'the targets NOW and PITR are left (howdah service reset --to now, or a moment)';
  const begun = await region.engine.lifecycle.begunAt(id);
  if (begun === null)
    throw refused(
      `the moment of its beginning is not recorded: an older release made it; ${choices}`,
    );
  try {
    const asked = { fork_strategy: 'PITR', target_time: begun } as const;
    return await targetOfFork(context, region, parent, asked);
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== 'INVALID_REQUEST') throw error;
    const why = error.message.replace(/^target_time: /, '');
    throw new ApiError(
      'INVALID_STATE',
      `cannot reset to its beginning: ${why}; ${choices}`,
      error.details,
    );
  }
}
