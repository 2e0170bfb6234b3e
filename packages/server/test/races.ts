/**
 * What can be asked of one service, as a model: what each call does in each status follows from the tables of the contract. Two calls at the
 * same time must end as one of the two orders does here. The unit test beside the routes fails when an operation has no row.
 */
import {
  ALLOWED,
  CANCEL,
  REPLICA_SET_STATUS,
  statusOf,
  statusOfReplicaSet,
  type Action,
  type Environment,
  type LiveStatus,
  type OperationKind,
} from '@howdah/contract';
import { ROUTES, successOf } from './document.ts';

/** An operation under way. */
type UnderWay = {
  kind: OperationKind;
  begun: boolean;
  /** Whether it was under way before both calls. */ original: boolean;
};
/** One that has ended, or none has: what is told of it in the end. The service, its first set, its second one, or a fork of it. */
type Told = `${'service' | 'set' | 'set 2' | 'fork'} ${OperationKind} ${string}`;

export type SetWorld = {
  power: 'running' | 'paused';
  reachable: boolean;
  deleting: boolean;
  environment: Environment;
  cpuMillis: number;
  pooler: boolean;
  inVpc: boolean;
  operation: UnderWay | null;
};

/** All that matters of one service. */
export type World = {
  power: 'running' | 'paused';
  reachable: boolean;
  deleting: boolean;
  /** Deleted, and can be restored. */
  deleted: boolean;
  /** To be removed for good: nobody can restore it, and once it was deleted, nobody sees it any more. */
  purged: boolean;
  name: string;
  environment: Environment;
  cpuMillis: number;
  replicas: number;
  pooler: boolean;
  inVpc: boolean;
  operation: UnderWay | null;
  verification: UnderWay | null;
  /** What was under way before both calls: a cancel names it. */
  original: OperationKind | null;
  originalVerification: OperationKind | null;
  sets: readonly SetWorld[];
  ended: readonly Told[];
};

/** Which of the two calls it is: they ask for different things where they can. */
export type Slot = 'one' | 'two';

export type Call = {
  operationId: string;
  /** The row of the contract's table that it goes by; null: by a rule of its own. */
  action: Action | null;
  body?: (slot: Slot) => object;
  query?: string;
  /** What it finds besides a service with a replica. */
  needs?: 'set' | 'pooler' | 'pooler of the set' | 'VPC' | 'verification';
  /** What becomes of a world, and what is answered; the order of the checks is that of the contract. */
  act: (world: World, slot: Slot) => Effect;
};

/** answer: the status, the code of an error, and the operation that is named. */
type Effect = { world: World; answer: string };

// ── the rules that calls share ───────────────────────────────────────────────────────────────────────────────────

const failing = (operation: UnderWay | null) =>
  operation === null ? null : { ...operation, failing: false };
export const statusIn = ({ deleting, power, reachable, operation }: World): LiveStatus =>
  deleting ? 'DELETING' : statusOf(power, reachable, failing(operation));
export const setStatusIn = ({ deleting, power, reachable, operation }: SetWorld): LiveStatus =>
  deleting ? 'DELETING' : statusOfReplicaSet(power, reachable, failing(operation));

const refused = (world: World): Effect => ({ world, answer: '400 INVALID_STATE' });
const missing = (world: World): Effect => ({ world, answer: '404 NOT_FOUND' });
const done = (world: World, operationId: string, kind: OperationKind | null): Effect => ({
  world,
  answer: `${successOf(operationId)} ${kind ?? 'nothing to do'}`,
});

/** A new operation; the one that it takes the place of has ended. */
function begun(world: World, kind: OperationKind, change: Partial<World>): World {
  const superseded = `failed superseded by ${kind}`;
  const beside = kind === 'delete' && world.verification !== null;
  const ended: Told[] = [
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
  const { inVpc } = world;
  let after = world;
  for (const [index, set] of world.sets.entries()) {
    if (set.deleting) after = { ...after, sets: after.sets.with(index, { ...set, inVpc }) };
    else if (set.power !== power)
      after = begunOnSet(after, index, power === 'running' ? 'start' : 'stop', { power, inVpc });
    else if (set.inVpc !== inVpc && set.operation === null)
      after = begunOnSet(after, index, inVpc ? 'attachToVPC' : 'detachFromVPC', { inVpc });
    else after = { ...after, sets: after.sets.with(index, { ...set, inVpc }) };
  }
  return after;
}

const nameOfSet = (index: number): 'set' | 'set 2' => (index === 0 ? 'set' : 'set 2');

function begunOnSet(
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

/** A change under the table. `decide` returns null when it is so already. */
function changing(
  operationId: string,
  action: Action & OperationKind,
  decide: (world: World, slot: Slot) => Partial<World> | null | 'refuse',
): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World, slot: Slot): Effect => {
    if (world.deleted) return missing(world);
    const verdict = ALLOWED[statusIn(world)][action];
    if (verdict === 'refuse') return refused(world);
    if (verdict === 'underway') return done(world, operationId, world.operation?.kind ?? null);
    const change = decide(world, slot);
    if (change === 'refuse') return refused(world);
    return change === null
      ? done(world, operationId, null)
      : done(begun(world, action, change), operationId, action);
  };
  return { operationId, action, act };
}

/** A change that is done with its answer. */
function noting(
  operationId: string,
  action: Action & OperationKind,
  change: (slot: Slot) => Partial<World>,
): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World, slot: Slot): Effect => {
    if (world.deleted) return missing(world);
    if (ALLOWED[statusIn(world)][action] !== 'accept') return refused(world);
    return done(
      { ...world, ...change(slot), ended: [...world.ended, `service ${action} succeeded`] },
      operationId,
      action,
    );
  };
  return { operationId, action, act };
}

function forking(action: 'forkNow' | 'forkPast'): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World): Effect => {
    if (world.deleted) return missing(world);
    if (ALLOWED[statusIn(world)][action] !== 'accept') return refused(world);
    return done({ ...world, ended: [...world.ended, 'fork fork queued'] }, 'forkService', 'fork');
  };
  return { operationId: 'forkService', action, act };
}

/** A change of a set that is active and left alone. */
function changingSet(
  operationId: string,
  kind: OperationKind,
  decide: (set: SetWorld, slot: Slot) => Partial<SetWorld> | null,
): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World, slot: Slot): Effect => {
    const [set] = world.sets;
    if (world.deleted || set === undefined) return missing(world);
    if (ALLOWED[statusIn(world)].changeReplicaSet === 'refuse') return refused(world);
    if (REPLICA_SET_STATUS[setStatusIn(set)] !== 'active' || set.operation !== null)
      return refused(world);
    const change = decide(set, slot);
    return change === null
      ? done(world, operationId, null)
      : done(begunOnSet(world, 0, kind, change), operationId, kind);
  };
  return { operationId, action: 'changeReplicaSet', act };
}

function cancelling(
  which: 'operation' | 'verification',
): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World): Effect => {
    const kind = which === 'operation' ? world.original : world.originalVerification;
    if (kind === null) return missing(world);
    const rule = CANCEL[kind];
    const target = world[which];
    if (typeof rule === 'object' || target === null || !target.original) return refused(world);
    if (rule === 'queued' && target.begun) return refused(world);
    const ended: Told[] = [...world.ended, `service ${kind} failed cancelled`];
    return done({ ...world, [which]: null, ended }, 'cancelOperation', null);
  };
  return { operationId: 'cancelOperation', action: null, act };
}

/** A delete without a restore after it; of a service that is deleted it ends the time for that. */
function purging(): Pick<Call, 'operationId' | 'action' | 'act' | 'query'> {
  const act = (world: World): Effect => {
    if (isRemoved(world)) return missing(world);
    // Its name is not given.
    if ([world, ...world.sets].some(({ environment }) => environment === 'PROD'))
      return { world, answer: '400 INVALID_REQUEST' };
    if (world.deleted) {
      const ended: Told[] = [...world.ended, 'service delete succeeded'];
      return done({ ...world, purged: true, ended }, 'deleteService', 'delete');
    }
    if (world.purged) return done(world, 'deleteService', world.operation?.kind ?? null);
    if (world.operation?.kind === 'delete')
      return done({ ...world, purged: true }, 'deleteService', 'delete');
    return done(
      begun(world, 'delete', { deleting: true, purged: true }),
      'deleteService',
      'delete',
    );
  };
  return { operationId: 'deleteService', action: null, query: '?purge=true', act };
}

const isRemoved = ({ deleted, purged }: World): boolean => deleted && purged;

function restoring(): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World): Effect => {
    if (isRemoved(world)) return missing(world);
    if (world.operation?.kind === 'restore') return done(world, 'restoreService', 'restore');
    if (!world.deleted) return refused(world);
    return done(
      begun(world, 'restore', { deleting: false, deleted: false }),
      'restoreService',
      'restore',
    );
  };
  return { operationId: 'restoreService', action: null, act };
}

function verifying(): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World): Effect => {
    if (world.deleted) return missing(world);
    if (world.verification !== null) return done(world, 'verifyBackup', 'verifyBackup');
    if (ALLOWED[statusIn(world)].verifyBackup !== 'accept') return refused(world);
    const verification = { kind: 'verifyBackup', begun: false, original: false } as const;
    return done({ ...world, verification }, 'verifyBackup', 'verifyBackup');
  };
  return { operationId: 'verifyBackup', action: 'verifyBackup', act };
}

function creatingSet(): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World): Effect => {
    if (world.deleted) return missing(world);
    if (ALLOWED[statusIn(world)].createReplicaSet !== 'accept') return refused(world);
    const { environment, inVpc } = world;
    const operation = { kind: 'create', begun: false, original: false } as const;
    const set: SetWorld = {
      power: 'running',
      reachable: false,
      deleting: false,
      environment,
      cpuMillis: 250,
      pooler: false,
      inVpc,
      operation,
    };
    return done({ ...world, sets: [...world.sets, set] }, 'createReplicaSet', 'create');
  };
  return { operationId: 'createReplicaSet', action: 'createReplicaSet', act };
}

function deletingSet(): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World): Effect => {
    const [set] = world.sets;
    if (world.deleted || set === undefined) return missing(world);
    if (set.deleting) return done(world, 'deleteReplicaSet', set.operation?.kind ?? null);
    const verdict = ALLOWED[statusIn(world)].deleteReplicaSet;
    if (verdict === 'refuse') return refused(world);
    if (verdict === 'underway') return done(world, 'deleteReplicaSet', set.operation?.kind ?? null);
    return done(begunOnSet(world, 0, 'delete', { deleting: true }), 'deleteReplicaSet', 'delete');
  };
  return { operationId: 'deleteReplicaSet', action: 'deleteReplicaSet', act };
}

function settingEnvironmentOfSet(): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World, slot: Slot): Effect => {
    const [set] = world.sets;
    if (world.deleted || set === undefined) return missing(world);
    if (ALLOWED[setStatusIn(set)].setEnvironment === 'refuse') return refused(world);
    const sets = world.sets.with(0, { ...set, environment: environmentOf(slot) });
    const ended: Told[] = [...world.ended, 'set setEnvironment succeeded'];
    return done({ ...world, sets, ended }, 'setEnvironmentOfReplicaSet', 'setEnvironment');
  };
  return { operationId: 'setEnvironmentOfReplicaSet', action: null, act };
}

// ── the calls ────────────────────────────────────────────────────────────────────────────────────────────────────

const cpuOf = (slot: Slot): number => (slot === 'one' ? 1000 : 2000);
const replicasOf = (slot: Slot): number => (slot === 'one' ? 2 : 0);
const environmentOf = (slot: Slot): Environment => (slot === 'one' ? 'PROD' : 'DEV');

export const CALLS: Record<string, Call> = {
  delete: changing('deleteService', 'delete', () => ({ deleting: true })),
  purge: purging(),
  start: changing('startService', 'start', () => ({ power: 'running' })),
  stop: changing('stopService', 'stop', () => ({ power: 'paused' })),
  resize: {
    ...changing('resizeService', 'resize', (world, slot) =>
      world.cpuMillis === cpuOf(slot) ? null : { cpuMillis: cpuOf(slot) },
    ),
    body: (slot) => ({ cpu_millis: String(cpuOf(slot)) }),
  },
  'fork of now': { ...forking('forkNow'), body: () => ({ fork_strategy: 'NOW' }) },
  'fork of the last snapshot': {
    ...forking('forkPast'),
    body: () => ({ fork_strategy: 'LAST_SNAPSHOT' }),
  },
  'enable pooler': changing('enablePooler', 'enablePooler', (world) =>
    world.pooler ? null : { pooler: true },
  ),
  'disable pooler': {
    ...changing('disablePooler', 'disablePooler', (world) =>
      world.pooler ? { pooler: false } : null,
    ),
    needs: 'pooler',
  },
  setHA: {
    ...changing('setHA', 'setHA', (world, slot) =>
      world.replicas === replicasOf(slot) ? null : { replicas: replicasOf(slot) },
    ),
    body: (slot) => ({ replica_count: replicasOf(slot) }),
  },
  switchover: changing('switchover', 'switchover', (world) =>
    world.replicas === 0 ? 'refuse' : {},
  ),
  drill: {
    ...changing('drill', 'drill', (world) => (world.replicas === 0 ? 'refuse' : {})),
    body: () => ({ kind: 'switchover' }),
  },
  attach: {
    ...changing('attachToVPC', 'attachToVPC', (world) => (world.inVpc ? null : { inVpc: true })),
    body: () => ({ vpc_id: VPC_ID }),
  },
  detach: {
    ...changing('detachFromVPC', 'detachFromVPC', (world) =>
      world.inVpc ? { inVpc: false } : null,
    ),
    needs: 'VPC',
  },
  'new password': {
    ...noting('updatePassword', 'updatePassword', () => ({})),
    body: () => ({ password: 'long enough' }),
  },
  environment: {
    ...noting('setEnvironment', 'setEnvironment', (slot) => ({ environment: environmentOf(slot) })),
    body: (slot) => ({ environment: environmentOf(slot) }),
  },
  rename: {
    ...noting('renameService', 'rename', (slot) => ({ name: slot })),
    body: (slot) => ({ name: slot }),
  },
  verify: verifying(),
  restore: restoring(),
  cancel: cancelling('operation'),
  'cancel a verification': { ...cancelling('verification'), needs: 'verification' },
  'create a set': {
    ...creatingSet(),
    body: () => ({ name: 'made', nodes: 1, cpu_millis: 250, memory_gbs: 1 }),
  },
  'resize a set': {
    ...changingSet('resizeReplicaSet', 'resize', (set, slot) =>
      set.cpuMillis === cpuOf(slot) ? null : { cpuMillis: cpuOf(slot) },
    ),
    body: (slot) => ({ cpu_millis: String(cpuOf(slot)) }),
    needs: 'set',
  },
  'enable the pooler of a set': {
    ...changingSet('enablePoolerOfReplicaSet', 'enablePooler', (set) =>
      set.pooler ? null : { pooler: true },
    ),
    needs: 'set',
  },
  'disable the pooler of a set': {
    ...changingSet('disablePoolerOfReplicaSet', 'disablePooler', (set) =>
      set.pooler ? { pooler: false } : null,
    ),
    needs: 'pooler of the set',
  },
  'environment of a set': {
    ...settingEnvironmentOfSet(),
    body: (slot) => ({ environment: environmentOf(slot) }),
    needs: 'set',
  },
  'delete a set': { ...deletingSet(), needs: 'set' },
};

/** The one VPC that there is. */
export const VPC_ID = '1000';

/** Every operation of the document that changes one service, or what is under way on it. */
export const RACING = ROUTES.filter(
  ({ changes, names }) =>
    changes && (names.includes('service_id') || names.includes('operation_id')),
).map(({ operationId }) => operationId);

// ── where they begin ─────────────────────────────────────────────────────────────────────────────────────────────

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
    operation:
      operation === null ? null : { kind: operation[0], begun: operation[1], original: true },
    verification: verified ? { kind: 'verifyBackup', begun: false, original: true } : null,
    original: operation?.[0] ?? null,
    originalVerification: verified ? 'verifyBackup' : null,
    sets: hasSet ? [set] : [],
    ended: [],
  };
}

// ── how it ends ──────────────────────────────────────────────────────────────────────────────────────────────────

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
    },
    sets: sets.map((set) => ({
      status: setStatusIn(set),
      power: set.power,
      deleting: set.deleting,
      environment: set.environment,
      cpuMillis: set.cpuMillis,
      pooler: set.pooler,
      inVpc: set.inVpc,
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
