/** Dry runs of changes, by what a service has on the disk. */
import { existsSync } from 'node:fs';
import { MAX_REPLICAS } from '@howdah/contract';
import type { Lifecycle } from '../../engine.ts';
import type { Layout } from '../host/layout.ts';
import { planOf } from '../../postgres/decisions/plan.ts';

/** The numbers that the servers of a service with replicas can have. */
const SERVER_NUMBERS = Array.from({ length: MAX_REPLICAS + 1 }, (_, n) => n);

/**
 * Plans by what exists of a service below a data directory.
 *
 * @param movesIntoVpc whether a VPC is a network that servers run in
 */
export function createPlan(layout: Layout, movesIntoVpc: boolean): Lifecycle['plan'] {
  return (kind, spec, running, sizeBefore) =>
    planOf(kind, spec, running, sizeBefore, {
      hasGateway: existsSync(layout.gateway(spec.id).root),
      primary: layout.primaryOf(spec.id),
      movesIntoVpc,
      servers: SERVER_NUMBERS.filter((n) => existsSync(layout.member(spec.id, n).data)),
    });
}
