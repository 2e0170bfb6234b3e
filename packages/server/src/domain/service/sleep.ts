/** Which services may fall asleep. */
import type { Addon } from '@howdah/contract';
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
