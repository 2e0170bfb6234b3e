/** Where races begin, and how the model says that they may end. */
import { type LiveStatus, type OperationKind } from '@howdah/contract';
import {
  type Call,
  nameOfSet,
  setStatusIn,
  type SetWorld,
  type Slot,
  statusIn,
  type UnderWay,
  type World,
} from './race-world.ts';

export type Start = LiveStatus | 'DELETED';

/** How a service is that is seen with a status; DELETED: it can be restored. */
const STARTS: Record<
  Start,
  Pick<World, 'power' | 'reachable'> & { operation: [OperationKind, boolean] | null }
> = {
  QUEUED: { power: 'running', reachable: false, operation: ['create', false] },
  CONFIGURING: { power: 'running', reachable: true, operation: ['switchover', false] },
  READY: { power: 'running', reachable: true, operation: null },
  UNSTABLE: { power: 'running', reachable: false, operation: null },
  PAUSING: { power: 'paused', reachable: true, operation: ['stop', true] },
  PAUSED: { power: 'paused', reachable: false, operation: null },
  RESUMING: { power: 'running', reachable: false, operation: ['start', true] },
  UPGRADING: { power: 'running', reachable: true, operation: ['resize', true] },
  DELETING: { power: 'running', reachable: true, operation: ['delete', true] },
  DELETED: { power: 'running', reachable: false, operation: null },
};

export const ALL_STARTS = Object.keys(STARTS).filter((start): start is Start => start in STARTS);

/** The world that two calls find. */
export function worldFor(start: Start, one: Call, two: Call): World {
  const { power, reachable, operation } = STARTS[start];
  const needs = [one.needs, two.needs];
  const deleting = start === 'DELETING' || start === 'DELETED';
  const setPower = deleting ? 'paused' : power;
  const set: SetWorld = {
    power: setPower,
    reachable: setPower === 'running',
    deleting: false,
    environment: 'DEV',
    cpuMillis: 250,
    pooler: needs.includes('pooler of the set'),
    inVpc: needs.includes('VPC'),
    hasList: needs.includes('allow list'),
    operation: null,
  };
  const hasSet = needs.includes('set') || needs.includes('pooler of the set');
  const verified = needs.includes('verification') && !deleting;
  return {
    power,
    reachable,
    deleting,
    deleted: start === 'DELETED',
    purged: false,
    name: 'raced for',
    environment: 'DEV',
    cpuMillis: 500,
    replicas: 1,
    pooler: needs.includes('pooler'),
    inVpc: needs.includes('VPC'),
    hasList: needs.includes('allow list'),
    hasExporter: needs.includes('exporter'),
    hasRetention: needs.includes('retention'),
    operation:
      operation === null ? null : { kind: operation[0], begun: operation[1], original: true },
    verification: verified ? { kind: 'verifyBackup', begun: false, original: true } : null,
    original: operation?.[0] ?? null,
    originalVerification: verified ? 'verifyBackup' : null,
    sets: hasSet ? [set] : [],
    ended: [],
  };
}

/** All that is compared. */
export type Ending = {
  answers: Record<Slot, string>;
  service: object;
  sets: readonly object[];
  operations: readonly string[];
  /** Entries of accepted changes in the audit log. */
  audited: number;
};

/** How two calls end, one after the other. */
export function inTurn(
  world: World,
  calls: Record<Slot, Call>,
  order: readonly [Slot, Slot],
): Ending {
  const [early, late] = order;
  const first = calls[early].act(world, early);
  const second = calls[late].act(first.world, late);
  const answers =
    early === 'one'
      ? { one: first.answer, two: second.answer }
      : { one: second.answer, two: first.answer };
  return endingOf(second.world, answers);
}

function endingOf(world: World, answers: Record<Slot, string>): Ending {
  const {
    power,
    deleting,
    deleted,
    purged,
    name,
    environment,
    cpuMillis,
    replicas,
    pooler,
    inVpc,
    hasList,
    hasExporter,
    hasRetention,
    sets,
  } = world;
  const goesOn = (on: string, operation: UnderWay | null) =>
    operation === null ? [] : [`${on} ${operation.kind} ${operation.begun ? 'running' : 'queued'}`];
  return {
    answers,
    service: {
      status: statusIn(world),
      power,
      deleting,
      deleted,
      purged,
      name,
      environment,
      cpuMillis,
      replicas,
      pooler,
      inVpc,
      hasList,
      hasExporter,
      hasRetention,
    },
    sets: sets.map((set) => ({
      status: setStatusIn(set),
      power: set.power,
      deleting: set.deleting,
      environment: set.environment,
      cpuMillis: set.cpuMillis,
      pooler: set.pooler,
      inVpc: set.inVpc,
      hasList: set.hasList,
    })),
    operations: [
      ...world.ended,
      ...goesOn('service', world.operation),
      ...goesOn('service', world.verification),
      ...sets.flatMap((set, index) => goesOn(nameOfSet(index), set.operation)),
    ].toSorted(),
    audited: Object.values(answers).filter((answer) => answer.startsWith('2')).length,
  };
}
