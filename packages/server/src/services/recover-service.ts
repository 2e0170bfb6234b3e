/** Restores the lost or damaged data of a service, in its place. */
import { ApiError } from '@howdah/contract';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { upgradesOf, withDataOf } from '../domain/service/upgrades.ts';
import { NotRestorable, type Restorable } from '../engine/engine.ts';
import { newId } from '../lib/ids.ts';
import { RepositoryProblem } from '../repository/repository.ts';
import { forgetPrimary } from '../store/engine-records.ts';
import type { ServicePlace } from '../store/service-documents.ts';
import { readUpgrades } from '../store/services.ts';
import type { Caller } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { type Accepted, changeUnderRules, reachEngine } from './service-rules.ts';

/**
 * Restores the data of a service from the newest state of its backups. Its present data is set
 * aside.
 */
export async function recoverService(
  context: ControlContext,
  caller: Caller,
  { key: id, region_code: code }: ServicePlace,
): Promise<Accepted> {
  const source = await findSource(context, code, id);
  const accepted = await changeUnderRules(
    context,
    caller,
    id,
    'recover',
    async (service, tx) => {
      if (service.upgrade?.problem === null)
        throw new ApiError(
          'INVALID_STATE',
          service.upgrade.reset === undefined
            ? 'an upgrade of the service is under way: wait until it is done, or undo it ' +
                '(howdah service upgrade --undo)'
            : 'a reset of the service is under way: wait until it is done',
        );
      // The service's directory names the primary, where it is there.
      if (source.isLost) await forgetPrimary(tx, id);
      return { ...recoveryFrom(service, source), power: 'running' };
    },
    'recover',
    { note: describeSource(source), leaving: { kind: 'recover' } },
  );
  return accepted;
}

/** The change of a service whose data comes back from its backups. */
export function recoveryFrom(
  service: ServiceRow,
  { repository, before }: Pick<Restorable, 'repository' | 'before'>,
): ServiceChange {
  const upgrade = before === undefined ? (service.upgraded?.id ?? null) : before.upgrade;
  const recovery = { id: newId(), repository: repository?.id ?? null, at: null, upgrade };
  const change = before === undefined ? {} : withDataOf(service, before.upgrade, before.major);
  return { ...change, recovery };
}

/** @throws ApiError when there is no backup, or the repository cannot be asked */
export async function findSource(
  context: ControlContext,
  code: string,
  id: string,
): Promise<Restorable> {
  try {
    const upgrades = upgradesOf(await readUpgrades(context.store.db, id));
    const { backups } = context.regions.of(code).engine;
    const found = await reachEngine(() => backups.restorable(id, upgrades));
    if (found !== null) return found;
  } catch (error) {
    if (error instanceof NotRestorable) throw new ApiError('INVALID_STATE', error.message);
    if (!(error instanceof RepositoryProblem)) throw error;
    throw new ApiError('UNAVAILABLE', error.message);
  }
  throw new ApiError(
    'INVALID_STATE',
    'neither this machine nor a repository has a backup of the service: bring its data back, or ' +
      'delete it',
  );
}

/** Says for a dry run which state comes back. */
export function describeSource(source: Restorable): string {
  const { repository, latestMs, seconds, before, place } = source;
  const where =
    repository === null ? (place ?? 'this machine') : `the repository ${repository.name}`;
  // Only a machine has data beside its backups, whose WAL is read too.
  const unless = place === undefined ? ' unless their WAL is still in its data' : '';
  const duration = seconds === null ? '' : ` It takes about ${seconds} s.`;
  const version =
    before === undefined
      ? ''
      : ` It is again of PostgreSQL ${before.major}: there is no backup since its upgrade or ` +
        'reset.';
  return (
    `its newest backup in ${where} comes back with the WAL after it, up to ` +
    `${new Date(latestMs).toISOString()} at least; later commits are lost${unless}.` +
    `${version}${duration}`
  );
}
