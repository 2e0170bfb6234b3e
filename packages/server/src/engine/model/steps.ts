/** The names of steps as users read them: those of the engine that runs PostgreSQL. */
import type { SimulatedTransition } from '@howdah/contract';
import { EXTENSION_STEPS } from '../engine.ts';
import type { ServiceSpec } from '../spec.ts';
import type { ModelService } from './state.ts';

export const STEP = {
  clone: 'clone template',
  fork: 'clone parent',
  writeFiles: 'write configuration',
  start: 'start PostgreSQL',
  stop: 'stop PostgreSQL',
  reload: 'reload configuration',
  createExtension: EXTENSION_STEPS[0],
  dropExtension: EXTENSION_STEPS[1],
  setPassword: 'set password',
  startPooler: 'start connection pooler',
  stopPooler: 'stop connection pooler',
  startGateway: 'start gateway',
  stopGateway: 'stop gateway',
  gatewayBefore: 'start gateway in front of primary',
  move: 'move primary and gateway',
  allowNetworks: 'configure allowed networks',
  restartPrimary: 'restart primary',
  recordedPrimary: 'promote',
  failOver: 'fail over',
  routeToNodes: 'route gateway to nodes',
  makeDirectory: 'create directory',
  removeData: 'remove data',
} as const;

/** A step at one server of a service with replicas. */
export const onServer = (name: string, n: number): string => `${name} (member ${n})`;

/** A step at one node of a read replica set. */
export const onNode = (name: string, n: number): string => `${name} (node ${n})`;

export const seedName = (n: number): string => onServer('clone primary', n);
export const seedNodeName = (n: number): string => onNode('clone primary', n);
export const startWithGatewayName = (n: number): string => `${onServer(STEP.start, n)} and gateway`;
export const stopSecondWriterName = (n: number): string => onServer('stop second writer', n);
export const switchOverName = (to: number): string => `switch over to member ${to}`;
export const retireName = (n: number): string => `remove member ${n}`;
export const restartNodeName = (n: number): string => `restart node ${n}`;

export const VERIFY_STEPS = [
  'restore snapshot',
  'replay WAL',
  'compare catalogs',
  'check tables and indexes',
  'count rows',
  'check page checksums',
] as const;

// The input of a decision about a model service, and its possible results.

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
