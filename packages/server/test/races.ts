/**
 * What can be asked of one service, as a model: what each call does in each status follows from the
 * tables of the contract. Two calls at the same time must end as one of the two orders does here.
 * The unit test beside the routes fails when an operation has no row.
 */
import {
  ALLOWED,
  CANCEL,
  REPLICA_SET_STATUS,
  requiresName,
  type Action,
  type Environment,
  type OperationKind,
} from '@howdah/contract';
import { ROUTES } from './document.ts';
import {
  begun,
  begunOnSet,
  type Call,
  done,
  type Effect,
  missing,
  refused,
  setStatusIn,
  type SetWorld,
  type Slot,
  statusIn,
  type Ended,
  EXPORTER_ID,
  LIST_ID,
  VPC_ID,
  type World,
} from './race-world.ts';

/** A change under the table. `decide` returns null when it is so already. */
function changing(
  operationId: string,
  action: Action & OperationKind,
  decide: (
    world: World,
    slot: Slot,
  ) => Partial<World> | null | 'refuse' | 'conflict' | 'unavailable',
): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World, slot: Slot): Effect => {
    if (world.deleted) return missing(world);
    const verdict = ALLOWED[statusIn(world)][action];
    if (verdict === 'refuse') return refused(world);
    if (verdict === 'underway') return done(world, operationId, world.operation?.kind ?? null);
    if (requiresName(action, isProtected(world) ? 'PROD' : 'DEV'))
      return { world, answer: '400 INVALID_REQUEST' };
    const change = decide(world, slot);
    if (change === 'refuse') return refused(world);
    if (change === 'conflict') return { world, answer: '409 CONFLICT' };
    if (change === 'unavailable') return { world, answer: '422 UNAVAILABLE_HERE' };
    return change === null
      ? done(world, operationId, null)
      : done(begun(world, action, change), operationId, action);
  };
  return { operationId, action, act };
}

/** A change that is done with its answer; null: it is so already. */
function noting(
  operationId: string,
  action: Action & OperationKind,
  decide: (slot: Slot, world: World) => Partial<World> | null,
): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World, slot: Slot): Effect => {
    if (world.deleted) return missing(world);
    if (ALLOWED[statusIn(world)][action] !== 'accept') return refused(world);
    const change = decide(slot, world);
    if (change === null) return done(world, operationId, null);
    const ended: Ended[] = [...world.ended, `service ${action} succeeded`];
    return done({ ...world, ...change, ended }, operationId, action);
  };
  return { operationId, action, act };
}

/** A change of the exporter, which depends on no status and begins no operation. */
function exporting(
  operationId: string,
  decide: (world: World) => boolean | 'conflict',
): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World): Effect => {
    if (world.deleted) return missing(world);
    const hasExporter = decide(world);
    if (hasExporter === 'conflict') return { world, answer: '409 CONFLICT' };
    const after = world.hasExporter === hasExporter ? world : { ...world, hasExporter };
    return done(after, operationId, null);
  };
  return { operationId, action: null, act };
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
    const ended: Ended[] = [...world.ended, `service ${kind} failed cancelled`];
    return done({ ...world, [which]: null, ended }, 'cancelOperation', null);
  };
  return { operationId: 'cancelOperation', action: null, act };
}

/** A delete without a restore after it; of a service that is deleted it ends the time for that. */
function purging(): Pick<Call, 'operationId' | 'action' | 'act' | 'query'> {
  const act = (world: World): Effect => {
    if (isRemoved(world)) return missing(world);
    if (isProtected(world)) return { world, answer: '400 INVALID_REQUEST' };
    if (world.deleted) {
      const ended: Ended[] = [...world.ended, 'service delete succeeded'];
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

/** Whether its name has to be given, which no call here does. */
const isProtected = (world: World): boolean =>
  [world, ...world.sets].some(({ environment }) => environment === 'PROD');

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

/** Refused in every status: there is no repository, and no other region. */
function refusing(operationId: string, action: Action, answer: string, body = {}): Call {
  const act = (world: World): Effect => (world.deleted ? missing(world) : { world, answer });
  return { operationId, action, act, body: () => body };
}

function creatingSet(): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World): Effect => {
    if (world.deleted) return missing(world);
    if (ALLOWED[statusIn(world)].createReplicaSet !== 'accept') return refused(world);
    const { environment, inVpc, hasList } = world;
    const operation = { kind: 'create', begun: false, original: false } as const;
    const set: SetWorld = {
      power: 'running',
      reachable: false,
      deleting: false,
      environment,
      cpuMillis: 250,
      pooler: false,
      inVpc,
      hasList,
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

/** A change of a set that is done when it is answered. */
function notingOnSet(
  kind: 'setEnvironment' | 'setPurpose',
  change: (set: SetWorld, slot: Slot) => SetWorld,
): Pick<Call, 'operationId' | 'action' | 'act'> {
  const act = (world: World, slot: Slot): Effect => {
    const [set] = world.sets;
    if (world.deleted || set === undefined) return missing(world);
    if (ALLOWED[setStatusIn(set)].setEnvironment === 'refuse') return refused(world);
    const ended: Ended[] = [...world.ended, `set ${kind} succeeded`];
    const sets = world.sets.with(0, change(set, slot));
    return done({ ...world, sets, ended }, `${kind}OfReplicaSet`, kind);
  };
  return { operationId: `${kind}OfReplicaSet`, action: null, act };
}

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
  restart: changing('restartService', 'restart', () => ({})),
  recover: {
    ...changing('recoverService', 'recover', () => ({ power: 'running' })),
    body: () => ({}),
  },
  reset: {
    // A simulated service has no data.
    ...changing('resetService', 'reset', () => 'unavailable'),
    body: () => ({}),
  },
  upgrade: {
    // No machine has this version.
    ...changing('upgradeService', 'upgrade', () => 'unavailable'),
    body: () => ({ pg_version: '99' }),
  },
  'undo an upgrade': {
    // The service was not upgraded.
    ...changing('upgradeService', 'undoUpgrade', () => 'refuse'),
    body: () => ({ undo: true }),
  },
  move: refusing('moveService', 'move', '400 INVALID_REQUEST', { region_code: 'local' }),
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
  'enable an extension': {
    ...changing('enableExtension', 'enableExtension', () => ({})),
    body: () => ({ name: 'pgstattuple' }),
  },
  // The extension is not enabled.
  'disable an extension': changing('disableExtension', 'disableExtension', () => null),
  'attach the list': {
    ...changing('attachToAllowList', 'attachToAllowList', (world) =>
      world.hasList ? null : { hasList: true },
    ),
    body: () => ({ allow_list_id: LIST_ID }),
  },
  'detach the list': {
    ...changing('detachFromAllowList', 'detachFromAllowList', (world) =>
      world.hasList ? { hasList: false } : 'conflict',
    ),
    body: () => ({ allow_list_id: LIST_ID }),
    needs: 'allow list',
  },
  'attach the exporter': {
    ...exporting('attachToExporter', () => true),
    body: () => ({ exporter_id: EXPORTER_ID }),
  },
  'detach the exporter': {
    ...exporting('detachFromExporter', (world) => (world.hasExporter ? false : 'conflict')),
    body: () => ({ exporter_id: EXPORTER_ID }),
    needs: 'exporter',
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
  expiry: {
    ...noting('setExpiry', 'setExpiry', () => ({})),
    body: () => ({ expires_at: null }),
  },
  'never sleep': {
    // A simulated service has no server to stop.
    ...changing('setAutoSuspend', 'setAutoSuspend', () => 'unavailable'),
    body: () => ({ auto_suspend_seconds: null }),
  },
  retention: {
    ...noting('setBackupRetention', 'setBackupRetention', (_, { hasRetention }) =>
      hasRetention ? { hasRetention: false } : null,
    ),
    body: () => ({ retention_days: null }), // which needs no repository
    needs: 'retention',
  },
  verify: verifying(),
  'back up': refusing('runBackup', 'runBackup', '422 UNAVAILABLE_HERE'),
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
    ...notingOnSet('setEnvironment', (set, slot) => ({ ...set, environment: environmentOf(slot) })),
    body: (slot) => ({ environment: environmentOf(slot) }),
    needs: 'set',
  },
  'purpose of a set': {
    ...notingOnSet('setPurpose', (set) => set),
    body: (slot) => ({ purpose: slot === 'one' ? 'lookups' : 'reports' }),
    needs: 'set',
  },
  'delete a set': { ...deletingSet(), needs: 'set' },
};

/** Every operation of the document that changes one service, or what is under way on it. */
export const RACING = ROUTES.filter(
  ({ changes, names }) =>
    changes && (names.includes('service_id') || names.includes('operation_id')),
).map(({ operationId }) => operationId);
