/** The model of a service that calls race for: what it is, and what a call makes of it. */
import {
  statusOf,
  statusOfReplicaSet,
  type Action,
  type Environment,
  type LiveStatus,
  type OperationKind,
} from '@howdah/contract';
import { successOf } from './document.ts';

/** The one VPC that there is. */
export const VPC_ID = '1000';
/** The one allow list that there is. */
export const LIST_ID = 'onlyonelis';
/** The one exporter that there is. */
export const EXPORTER_ID = 'onlyoneexp';

/** An operation under way. */
export type UnderWay = {
  kind: OperationKind;
  begun: boolean;
  /** Whether it was under way before both calls. */ original: boolean;
};

/**
 * An operation that has ended, of the service, its first or second set, or a fork: how it ended.
 */
export type Ended = `${'service' | 'set' | 'set 2' | 'fork'} ${OperationKind} ${string}`;

export type SetWorld = {
  power: 'running' | 'paused';
  reachable: boolean;
  deleting: boolean;
  environment: Environment;
  cpuMillis: number;
  pooler: boolean;
  inVpc: boolean;
  /** Whether it has the allow list. */
  hasList: boolean;
  operation: UnderWay | null;
};

/** All that matters of one service. */
export type World = {
  power: 'running' | 'paused';
  reachable: boolean;
  deleting: boolean;
  /** Deleted, and can be restored. */
  deleted: boolean;
  /**
   * To be removed for good: nobody can restore it, and once it was deleted, nobody sees it any
   * more.
   */
  purged: boolean;
  name: string;
  environment: Environment;
  cpuMillis: number;
  replicas: number;
  pooler: boolean;
  inVpc: boolean;
  hasList: boolean;
  hasExporter: boolean;
  /** Whether it has a backup retention of its own. */
  hasRetention: boolean;
  operation: UnderWay | null;
  verification: UnderWay | null;
  /** The operation that was under way before both calls: a cancel names it. */
  original: OperationKind | null;
  originalVerification: OperationKind | null;
  sets: readonly SetWorld[];
  ended: readonly Ended[];
};

/** Which of the two calls it is: they ask for different things where they can. */
export type Slot = 'one' | 'two';

export type Call = {
  operationId: string;
  /** The row of the contract's table that it goes by; null: by a rule of its own. */
  action: Action | null;
  body?: (slot: Slot) => object;
  query?: string;
  /** The things that it finds besides a service with a replica. */
  needs?:
    | 'set'
    | 'pooler'
    | 'pooler of the set'
    | 'VPC'
    | 'allow list'
    | 'exporter'
    | 'retention'
    | 'verification';
  /** Changes a world, and answers; the order of the checks is that of the contract. */
  act: (world: World, slot: Slot) => Effect;
};

/** answer: the status, the code of an error, and the operation that is named. */
export type Effect = { world: World; answer: string };

const failing = (operation: UnderWay | null) =>
  operation === null ? null : { ...operation, failing: false };

export const statusIn = ({ deleting, power, reachable, operation }: World): LiveStatus =>
  deleting ? 'DELETING' : statusOf(power, reachable, failing(operation));

export const setStatusIn = ({ deleting, power, reachable, operation }: SetWorld): LiveStatus =>
  deleting ? 'DELETING' : statusOfReplicaSet(power, reachable, failing(operation));

export const refused = (world: World): Effect => ({ world, answer: '400 INVALID_STATE' });

export const missing = (world: World): Effect => ({ world, answer: '404 NOT_FOUND' });

export const done = (world: World, operationId: string, kind: OperationKind | null): Effect => ({
  world,
  answer: `${successOf(operationId)} ${kind ?? 'nothing to do'}`,
});

/** A new operation; the one that it takes the place of has ended. */
export function begun(world: World, kind: OperationKind, change: Partial<World>): World {
  const superseded = `failed superseded by ${kind}`;
  const beside = kind === 'delete' && world.verification !== null;
  const ended: Ended[] = [
    ...world.ended,
    ...(world.operation === null ? [] : [`service ${world.operation.kind} ${superseded}` as const]),
    ...(beside ? [`service verifyBackup ${superseded}` as const] : []),
  ];
  const after = {
    ...world,
    ...change,
    operation: { kind, begun: false, original: false },
    ended,
    ...(beside ? { verification: null } : {}),
  };
  return followed(after);
}

/** Sets run while their service does, and stand where it does. */
function followed(world: World): World {
  const power = world.deleting ? 'paused' : world.power;
  const { inVpc, hasList } = world;
  const networks = { inVpc, hasList };
  let after = world;
  for (const [index, set] of world.sets.entries()) {
    if (set.deleting) after = { ...after, sets: after.sets.with(index, { ...set, ...networks }) };
    else if (set.power !== power)
      after = begunOnSet(after, index, power === 'running' ? 'start' : 'stop', {
        power,
        ...networks,
      });
    else if (world.operation?.kind === 'restart' && set.operation === null)
      after = begunOnSet(after, index, 'restart', networks);
    else if (set.inVpc !== inVpc && set.operation === null)
      after = begunOnSet(after, index, inVpc ? 'attachToVPC' : 'detachFromVPC', networks);
    else if (set.hasList !== hasList && set.operation === null)
      after = begunOnSet(
        after,
        index,
        hasList ? 'attachToAllowList' : 'detachFromAllowList',
        networks,
      );
    else after = { ...after, sets: after.sets.with(index, { ...set, ...networks }) };
  }
  return after;
}

export const nameOfSet = (index: number): 'set' | 'set 2' => (index === 0 ? 'set' : 'set 2');

export function begunOnSet(
  world: World,
  index: number,
  kind: OperationKind,
  change: Partial<SetWorld>,
): World {
  const set = world.sets[index];
  if (set === undefined) return world;
  const superseded =
    set.operation === null
      ? []
      : [`${nameOfSet(index)} ${set.operation.kind} failed superseded by ${kind}` as const];
  const sets = world.sets.with(index, {
    ...set,
    ...change,
    operation: { kind, begun: false, original: false },
  });
  return { ...world, sets, ended: [...world.ended, ...superseded] };
}
