/** The input of a decision about a model service, and its possible results. */
import type { ServiceSpec } from '../spec.ts';
import type { SimulatedTransition } from '@howdah/contract';
import type { ModelService } from './state.ts';

/** The input of a decision. */
export type Situation = Readonly<{
  spec: ServiceSpec;
  service: ModelService;
  /** The service that a read replica set follows, or a fork is made from; null: it is gone. */
  parent: ModelService | null;
  nowMs: number;
  /** Automatic failovers of a service are at least this far apart. */
  cooldownMs: number;
}>;

/** A step that changes the service alone. @returns in `apply`, the detail that users read */
export type Change = Readonly<{
  kind: 'change';
  name: string;
  transition: SimulatedTransition | null;
  apply: (service: ModelService, nowMs: number) => string;
}>;
/** A change of the primary, which the control plane records first. */
export type PrimaryChange = Readonly<{
  kind: 'failover' | 'switchover' | 'drill';
  name: string;
  transition: SimulatedTransition;
  to: number;
  why: string;
}>;
export type NextStep =
  | Readonly<{ kind: 'settled' }>
  | Readonly<{ kind: 'wait'; why: string; waitMs: number }>
  | Readonly<{ kind: 'refuse'; why: string }>
  | Change
  | PrimaryChange;

export const SETTLED: NextStep = { kind: 'settled' };

export function changeBy(
  name: string,
  transition: SimulatedTransition | null,
  apply: Change['apply'],
): Change {
  return { kind: 'change', name, transition, apply };
}
