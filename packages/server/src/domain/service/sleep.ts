/** Which services may fall asleep, and which do without being asked to. */
import type { Addon } from '@howdah/contract';
import type { KeyBounds } from './lifetime.ts';
import type { ServiceRow } from './row.ts';

/** The facts of a service that decide whether it may fall asleep. */
export type SleepFacts = Readonly<
  Pick<ServiceRow, 'has_gateway' | 'pooler' | 'vpc_id' | 'read_replica_sets'> & {
    addons: readonly Addon[];
  }
>;

/** Why a service cannot fall asleep; null: it can. */
export function whyNotAsleep(service: SleepFacts): string | null {
  if (service.addons.includes('time-series'))
    return 'jobs of TimescaleDB would not run while it sleeps; use a service of type POSTGRES';
  if (service.has_gateway)
    return 'it has, or had, replicas, which are there to serve at once; fork it without them';
  if (service.pooler) return 'it has a connection pooler; disable that first';
  if (service.vpc_id !== null) return 'it is in a VPC; detach it first';
  if (service.read_replica_sets.length > 0)
    return 'it has read replica sets, which follow it; delete them first';
  return null;
}

/**
 * The time after which a new service falls asleep that was not asked for; null: never.
 *
 * @param parent of a fork; null: none
 */
export function autoSuspendByDefault(
  { autoSuspendSeconds: ofKey }: Pick<KeyBounds, 'autoSuspendSeconds'>,
  made: SleepFacts & Pick<ServiceRow, 'environment'>,
  parent: Pick<ServiceRow, 'auto_suspend_seconds'> | null,
): number | null {
  if (made.environment === 'PROD' || whyNotAsleep(made) !== null) return null;
  return ofKey ?? parent?.auto_suspend_seconds ?? null;
}
