import { DRILL_STEP } from '../../engine.ts';

/** The names of steps as users read them. */
export const STEPS = {
  snapshot: 'take snapshot',
  create: 'create Cluster',
  start: 'start PostgreSQL',
  stop: 'stop PostgreSQL',
  restart: 'restart PostgreSQL',
  write: 'write configuration',
  takeBack: 'take back fields that others have set',
  addNode: 'add node',
  removeNode: 'remove node',
  rebuild: 'remove nodes that cannot follow',
  addStandby: 'add standby',
  removeStandby: 'remove standby',
  failOver: 'fail over',
  drill: DRILL_STEP,
  growVolume: 'grow volume',
  startPooler: 'start connection pooler',
  reloadPooler: 'reload connection pooler',
  stopPooler: 'stop connection pooler',
  detach: 'detach from parent',
  endRecovery: 'end the recovery',
  promote: 'promote the copy',
  connect: 'connect',
  remove: 'remove data',
  removeArchive: 'remove archive',
} as const;

const SWITCHOVER = 'switch over to member ';

export const switchOverTo = (node: number): string => `${SWITCHOVER}${node}`;

/** The member that an awaited step makes the primary; null: it is no switchover. */
export function switchoverIn(step: string): number | null {
  const node = step.startsWith(SWITCHOVER) ? step.slice(SWITCHOVER.length) : '';
  return /^\d{1,4}$/.test(node) ? Number(node) : null;
}

/** Whether an awaited step may change the primary: no failover is reported then. */
export const mayChangePrimary = (step: string | null): boolean =>
  step !== null && step !== STEPS.start;
