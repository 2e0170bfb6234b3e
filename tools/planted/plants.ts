/** All planted defects. */
import { CLUSTER_PLANTS } from './clusters.ts';
import { CONTROL_PLANTS } from './control.ts';
import { LEASE_PLANTS } from './leases.ts';
import { LIFETIME_PLANTS } from './lifetimes.ts';
import { DATA_PLANTS } from './data.ts';
import { MACHINE_PLANTS } from './machine.ts';
import { SLEEP_PLANTS } from './sleep.ts';
import type { Plant } from './plant.ts';

export const PLANTS: readonly Plant[] = [
  ...CLUSTER_PLANTS,
  ...MACHINE_PLANTS,
  ...DATA_PLANTS,
  ...CONTROL_PLANTS,
  ...LEASE_PLANTS,
  ...LIFETIME_PLANTS,
  ...SLEEP_PLANTS,
];
