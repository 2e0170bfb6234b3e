/** Moves a service into a newer major version of PostgreSQL, and back. */
import { ALLOWED, ApiError, refusal, type UpgradeBody } from '@howdah/contract';
import type { ServiceRow } from '../domain/service/row.ts';
import { newId } from '../lib/ids.ts';
import type { Region } from '../engine/regions.ts';
import { whyNotConverted } from '../engine/upgrades.ts';
import { beginOperation, besideUnderWay } from '../store/operations.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import { listParentsOfUnfinishedForks } from '../store/service-lists.ts';
import type { Tx } from '../store/tables.ts';
import { type Caller, makeChange } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { refuseFullDisk } from './room.ts';
import { readSlotNames } from './not-carried.ts';
import { protectionOfRow } from '../domain/service/spec.ts';
import { refuseByRole } from './permissions.ts';
import { type Accepted, changeUnderRules, lockOwnService } from './service-rules.ts';

/** Upgrades a service, tries that on a copy, or undoes the last upgrade. */
export async function upgradeService(
  context: ControlContext,
  caller: Caller,
  place: ServicePlace,
  body: UpgradeBody,
): Promise<Accepted> {
  const { pg_version: version, undo = false } = body;
  if (undo ? version !== undefined || body.try !== undefined : version === undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      'pg_version: it is needed, with or without try; or undo alone, without both',
    );
  if (undo) return undoUpgrade(context, caller, place);
  const major = Number(version);
  return body.try === true
    ? tryUpgrade(context, caller, place, major)
    : upgrade(context, caller, place, major);
}

async function upgrade(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
  major: number,
): Promise<Accepted> {
  const region = context.regions.of(code);
  await refuseFullDisk(region, 'upgrades');
  const decide = async (service: ServiceRow, tx: Tx) => {
    if (service.pg_version === major) return null;
    refuseVersion(region, service, major);
    await refuseWhileUsed(tx, id);
    return { upgrade: { id: newId(), to: major, undo: false, problem: null } };
  };
  const note =
    'nobody can connect while the data is copied, which takes as long as a dump and a restore: ' +
    'with try, a copy shows how long. The former data is kept for as long as a deleted service: ' +
    'undo brings it back. Points in time before the upgrade cannot be reached after it.';
  const leaving = { kind: 'upgrade', slots: await readSlotNames(region, id) } as const;
  return changeUnderRules(context, caller, id, 'upgrade', decide, 'upgrade', { note, leaving });
}

/** Tries an upgrade beside the service. While one is tried, another call returns its operation. */
async function tryUpgrade(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
  major: number,
): Promise<Accepted> {
  const region = context.regions.of(code);
  await refuseFullDisk(region, 'upgrades');
  return makeChange(context.store, caller, async (tx) => {
    const { service } = await lockOwnService(tx, caller, id);
    refuseByRole(caller, 'upgrade', protectionOfRow(service));
    const underWay = await besideUnderWay(tx, id, 'tryUpgrade');
    if (underWay === null && ALLOWED[service.status].upgrade !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('upgrade', service.status));
    if (service.pg_version === major) return { doc: service.doc, operationId: null };
    refuseVersion(region, service, major);
    const operation =
      underWay ?? (await beginOperation(tx, service, 'tryUpgrade', caller, null, { major }));
    return { doc: service.doc, operationId: operation.id };
  });
}

async function undoUpgrade(
  context: ControlContext,
  caller: Caller,
  { key: id }: ServicePlace,
): Promise<Accepted> {
  const decide = async (service: ServiceRow, tx: Tx) => {
    const { name, pg_version: version } = service;
    if (service.upgrade?.reset !== undefined)
      throw new ApiError('INVALID_STATE', 'a reset of the service is under way: it ends by itself');
    // An upgrade that does not get to its end is undone too.
    const last = service.upgrade ?? service.upgraded;
    const to = service.upgrade === null ? service.upgraded?.from : version;
    if (last === null || to === undefined || to === null)
      throw new ApiError(
        'INVALID_STATE',
        'the service was not upgraded, or that was undone: there is no former data',
      );
    // A DEV service needs it too.
    if (caller.confirm !== name && !caller.dryRun)
      throw new ApiError(
        'INVALID_REQUEST',
        'confirm: what was written since the upgrade is lost: it needs the name: ' +
          JSON.stringify(name),
      );
    await refuseWhileUsed(tx, id);
    return { upgrade: { id: last.id, to, undo: true, problem: null }, power: 'running' as const };
  };
  const note =
    'the data from before the upgrade comes back, with its snapshots and its WAL; what was ' +
    'written since then is lost. Nobody can connect meanwhile.';
  return changeUnderRules(context, caller, id, 'undoUpgrade', decide, 'undoUpgrade', {
    note,
    leaving: { kind: 'undoUpgrade' },
  });
}

/** @throws ApiError when the data cannot become that of the version */
function refuseVersion(
  { engine }: Region,
  { pg_version: own, addons }: ServiceRow,
  major: number,
): void {
  if (own !== null && major < own)
    throw new ApiError(
      'INVALID_REQUEST',
      `pg_version: found ${JSON.stringify(String(major))}; the service has ${own}, and data ` +
        'becomes that of a newer version only',
    );
  const why = whyNotConverted(engine.upgrades, addons, major);
  if (why !== null) throw new ApiError('UNAVAILABLE_HERE', `pg_version: ${why}`);
}

/** @throws ApiError while something needs the data, its snapshots or its WAL where they are */
export async function refuseWhileUsed(tx: Tx, id: string): Promise<void> {
  if ((await besideUnderWay(tx, id, 'tryUpgrade')) !== null)
    throw new ApiError(
      'INVALID_STATE',
      'an upgrade is being tried: wait for that operation, or cancel it',
    );
  if ((await listParentsOfUnfinishedForks(tx)).has(id))
    throw new ApiError(
      'INVALID_STATE',
      'the service is being forked: wait until the fork is READY, or delete the fork',
    );
}
