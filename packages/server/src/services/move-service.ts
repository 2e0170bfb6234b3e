/** Moves of services to other regions. */
import { ALLOWED, ApiError, refusal, type MoveBody } from '@howdah/contract';
import { describeCapacity, hasRoom } from '../domain/service/capacity.ts';
import { whyNotMoved } from '../domain/service/move.ts';
import type { MovedData, MoveTarget } from '../engine/moves.ts';
import type { Region } from '../engine/regions.ts';
import type { Move, ServiceRow } from '../domain/service/row.ts';
import { sizeOf, protectionOfRow } from '../domain/service/spec.ts';
import { newId } from '../lib/ids.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation, besideUnderWay } from '../store/operations.ts';
import type { ServiceDoc } from '../store/service-documents.ts';
import { listParentsOfUnfinishedForks } from '../store/service-lists.ts';
import { changeService } from '../store/services.ts';
import type { Tx } from '../store/tables.ts';
import { type Caller, makeChange } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { reserveEndpoint } from './endpoints.ts';
import { refuseSecondProject } from './single-project.ts';
import { keepNotCarried } from './not-carried.ts';
import { refuseByRole, refuseUnconfirmed } from './permissions.ts';
import { regionOrRefuse } from './regions.ts';
import {
  type Accepted,
  lockOwnService,
  reachEngine,
  refuseWithoutAnswer,
} from './service-rules.ts';

/** Moves a service to another region, if nothing is in the way. */
export async function moveService(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code, status }: Pick<ServiceDoc, 'key' | 'region_code' | 'status'>,
  { region_code: wanted }: MoveBody,
): Promise<Accepted> {
  const from = context.regions.of(code);
  const { region: to, alias } = regionOrRefuse(context.regions, wanted);
  // Before its data is read: a role that may not move the service learns nothing of it.
  await context.store.db.transaction().execute(async (tx) => {
    const { service } = await lockOwnService(tx, caller, id);
    refuseByRole(caller, 'move', protectionOfRow(service));
  });
  if (to === from)
    throw new ApiError('INVALID_REQUEST', `region_code: the service is in the region ${code}`);
  if (ALLOWED[status].move !== 'accept')
    throw new ApiError('INVALID_STATE', refusal('move', status));
  await refuseWithoutAnswer(to);
  const { data, target } = await examine(from, to, id);
  return makeChange(context.store, caller, async (tx) => {
    const { service, operation } = await lockOwnService(tx, caller, id);
    refuseByRole(caller, 'move', protectionOfRow(service));
    if (ALLOWED[service.status].move !== 'accept')
      throw new ApiError('INVALID_STATE', refusal('move', service.status));
    refuseUnconfirmed(caller, 'move', service.name, protectionOfRow(service));
    refuseSecondMove(service);
    await refuseSecondProject(tx, context.regions, to, caller.projectId);
    await refuseWhileCopied(tx, id);
    const postgres = to.engine.lifecycle.supports(service.addons, service.pg_version);
    const reasons = [
      ...whyNotMoved(service, postgres, data, target),
      ...whyNotLimited(service, to),
      ...whyTooLarge(service, to),
    ];
    if (reasons.length > 0)
      throw new ApiError(
        'UNAVAILABLE_HERE',
        `cannot move the service to the region ${to.code}: ${reasons.join('. Also: ')}`,
        { reasons },
      );
    const move: Move = {
      id: newId(),
      state: 'copy',
      from: from.code,
      source: { host: service.host, port: service.port },
      to: to.code,
      toAlias: alias,
      endpoint: await reserveEndpoint(tx, to, { id, poolerOf: null }),
      prepared: false,
      silent: null,
      switched: null,
      kept: false,
      until: null,
      problem: null,
      withheld: false,
    };
    const next = await beginOperation(tx, service, 'move', caller, operation);
    await keepNotCarried(tx, next.id, { kind: 'move' }, service);
    const row = await changeService(tx, service, { move, attempt: 0 }, next);
    await makeDue(tx, id);
    return { doc: row.doc, operationId: next.id, note: noteOf(to, data) };
  });
}

/** The service's allow list goes along, and must hold there. */
function whyNotLimited(
  { allow_list_id: list }: Pick<ServiceRow, 'allow_list_id'>,
  { engine }: Region,
): string[] {
  const allowed = engine.capabilities.actions.attachToAllowList;
  return list === null || allowed.possible
    ? []
    : [`it has an allow list; detach it first, or choose another region: ${allowed.why}`];
}

/** A copy has the size of the service. */
function whyTooLarge(service: ServiceRow, { code, engine }: Region): string[] {
  const [size, { room }] = [sizeOf(service), engine.capabilities];
  if (room === null || size === 'shared' || hasRoom(size, room)) return [];
  return [
    `its size ${size.cpuMillis}/${size.memoryGbs} is more than ${room.place} of the region ` +
      `${code} has, ${describeCapacity(room)}; resize it first`,
  ];
}

/** The former server of the last move is where the state of the next one would be. */
function refuseSecondMove({ move }: Pick<ServiceRow, 'move'>): void {
  if (move === null) return;
  throw new ApiError(
    'INVALID_STATE',
    move.until === null
      ? 'an earlier move of the service is being ended: wait until its copy is removed'
      : `the server that the service had before its last move is kept until ${move.until}`,
  );
}

/** @throws ApiError UNAVAILABLE_HERE where the regions have no moves between them */
async function examine(
  from: Region,
  to: Region,
  id: string,
): Promise<{ data: MovedData; target: MoveTarget }> {
  const [{ from: source, place: here }, { to: target, place }] = [
    from.engine.moves,
    to.engine.moves,
  ];
  if ('why' in source) throw new ApiError('UNAVAILABLE_HERE', source.why);
  if ('why' in target) throw new ApiError('UNAVAILABLE_HERE', target.why);
  if (place === here)
    throw new ApiError(
      'UNAVAILABLE_HERE',
      'services move between a region on a machine and one on Kubernetes only; copy the data ' +
        'with pg_dump',
    );
  const described = await reachEngine(() => target.describe());
  const data = await reachEngine(() => source.read(id));
  return { data, target: { ...described, place, versions: null } };
}

async function refuseWhileCopied(tx: Tx, id: string): Promise<void> {
  if (
    (await besideUnderWay(tx, id, 'tryUpgrade')) !== null ||
    (await listParentsOfUnfinishedForks(tx)).has(id)
  )
    throw new ApiError(
      'INVALID_STATE',
      'the service is being forked, or an upgrade of it is tried: wait for that, or cancel it',
    );
}

/** The effect of a move, in words. */
function noteOf({ code, engine }: Region, { bytes }: MovedData): string {
  const offMachine =
    'missing' in engine.capabilities.offMachine
      ? ' No repository has backups of services there.'
      : '';
  return (
    `nothing is in the way of a move to the region ${code}. It copies ` +
    `${Math.ceil(bytes / 1e6)} MB while the service runs. Nobody can write for a moment at its ` +
    'end, and clients need another address from then on. Snapshots, and points in time before ' +
    `the move, stay behind.${offMachine}`
  );
}
