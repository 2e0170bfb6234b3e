/** The time after which a service falls asleep, and what keeps it awake. */
import { ApiError, type Awake, type Service, type SetAutoSuspendBody } from '@howdah/contract';
import type { ServiceRow } from '../domain/service/row.ts';
import { autoSuspendByDefault, type SleepFacts, whyNotAsleep } from '../domain/service/sleep.ts';
import type { Region } from '../engine/regions.ts';
import type { ServiceDoc } from '../store/service-documents.ts';
import type { Caller } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { refuseImpossible } from './regions.ts';
import { type Accepted, changeUnderRules, reachEngine } from './service-rules.ts';

/** @throws ApiError INVALID_REQUEST when it cannot fall asleep; UNAVAILABLE_HERE by its region */
export function autoSuspendOrRefuse(
  region: Region,
  seconds: number | null,
  service: SleepFacts,
): number | null {
  if (seconds === null) return null;
  refuseImpossible(region, 'setAutoSuspend', 'auto_suspend_seconds');
  const why = whyNotAsleep(service);
  if (why !== null)
    throw new ApiError('INVALID_REQUEST', `auto_suspend_seconds: found ${seconds}; ${why}`);
  return seconds;
}

/**
 * The setting of a new service: as asked for; else that of its key, and of the parent of a fork,
 * where the service can have it.
 *
 * @param parent of a fork; null: none
 * @throws as {@link autoSuspendOrRefuse}
 */
export function autoSuspendOfNew(
  region: Region,
  { bounds }: Pick<Caller, 'bounds'>,
  asked: number | null | undefined,
  made: SleepFacts & Pick<ServiceRow, 'environment'>,
  parent: Pick<ServiceRow, 'auto_suspend_seconds'> | null,
): number | null {
  if (asked !== undefined) return autoSuspendOrRefuse(region, asked, made);
  const isPossible = region.engine.capabilities.actions.setAutoSuspend.possible;
  return isPossible ? autoSuspendByDefault(bounds, made, parent) : null;
}

/** Refuses what a service that may fall asleep cannot have. @throws ApiError INVALID_STATE */
export function refuseWithSleep(
  { auto_suspend_seconds: seconds }: Pick<ServiceRow, 'auto_suspend_seconds'>,
  what: string,
): void {
  if (seconds === null) return;
  throw new ApiError(
    'INVALID_STATE',
    `a service that may fall asleep has no ${what}; set auto_suspend_seconds to null first ` +
      '(setAutoSuspend)',
  );
}

/**
 * Sets when a service falls asleep. Its server is started again where it gets a relay before its
 * endpoint, or loses that; another time is set at once.
 */
export function setAutoSuspend(
  context: ControlContext,
  caller: Caller,
  id: string,
  { auto_suspend_seconds: seconds }: SetAutoSuspendBody,
): Promise<Accepted> {
  return changeUnderRules(
    context,
    caller,
    id,
    'setAutoSuspend',
    (service) => {
      autoSuspendOrRefuse(context.regions.of(service.region_code), seconds, service);
      return service.auto_suspend_seconds === seconds ? null : { auto_suspend_seconds: seconds };
    },
    'setAutoSuspend',
    { needsNoStep: ({ auto_suspend_seconds: before }) => before !== null && seconds !== null },
  );
}

/** Reads what keeps a service awake, and does not wake it. */
export async function readAwake(
  { regions }: ControlContext,
  { key: id, region_code: region, doc }: ServiceDoc,
): Promise<Awake> {
  const service: Service = JSON.parse(doc);
  const { auto_suspend_seconds = null, suspended = false, last_active_at, status } = service;
  const { sleep } = regions.of(region).engine;
  if (sleep === null || auto_suspend_seconds === null || suspended || status !== 'READY')
    return {
      auto_suspend_seconds,
      suspended,
      ...(last_active_at === undefined ? {} : { last_active_at }),
      held_by: [],
    };
  const awake = await reachEngine(() => sleep.awake());
  const idleMs = awake.get(id) ?? null;
  const lastActive = idleMs === null ? null : new Date(Date.now() - idleMs).toISOString();
  return {
    auto_suspend_seconds,
    suspended,
    ...(lastActive === null ? {} : { last_active_at: lastActive }),
    held_by: [...(await reachEngine(() => sleep.holders(id)))],
  };
}
