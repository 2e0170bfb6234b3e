/**
 * The steps that a change takes if nothing is in the way: the answer to a dry run. decide.ts and
 * decide-ha.ts choose the real ones.
 */
import type { OperationKind } from '@howdah/contract';
import type { Member, ServiceSpec } from '../../spec.ts';
import { haStepName } from './decide-ha.ts';
import { STEP_NAME } from './decide.ts';

/**
 * @param running whether its server runs already; of one that is to be made: whether a spare
 *   becomes it
 * @param keepsSize whether a resize changes nothing but the storage quota, for which no server
 *   restarts
 */
export function planOf(
  kind: OperationKind,
  spec: ServiceSpec,
  running: boolean,
  keepsSize = false,
): string[] {
  const pooler = spec.pooler === null ? [] : [STEP_NAME.startPooler];
  if (spec.set !== null) return planOfSet(kind, spec, spec.set.nodes, pooler);
  const start = [STEP_NAME.start, ...pooler];
  switch (kind) {
    case 'create':
    case 'fork':
      return [
        ...(running
          ? []
          : [spec.origin === null ? STEP_NAME.clone : STEP_NAME.fork, STEP_NAME.start]),
        STEP_NAME.setFirstPassword,
        ...replicasOf(spec),
        ...pooler,
      ];
    case 'start':
    case 'restore':
    case 'repair':
      return spec.power === 'running' ? start : [];
    case 'stop':
    case 'delete':
      return running
        ? [...(spec.pooler === null ? [] : [STEP_NAME.stopPooler]), STEP_NAME.stop]
        : [];
    case 'resize':
      if (keepsSize) return spec.power === 'running' ? [STEP_NAME.reload] : [];
      return spec.power === 'running'
        ? [STEP_NAME.stop, STEP_NAME.writeFiles, STEP_NAME.start]
        : [];
    case 'enablePooler':
      return spec.power === 'running' ? pooler : [];
    case 'disablePooler':
      return spec.power === 'running' ? [STEP_NAME.stopPooler] : [];
    case 'setHA':
      return spec.ha === null ? [] : replicasOf(spec);
    case 'switchover':
    case 'failover':
      return ['switch over to another member'];
    case 'drill':
      return [`rehearse a ${spec.ha?.drill ?? 'failover'}`];
    case 'attachToVPC':
      if (spec.power === 'paused') return [];
      return spec.vpc?.address == null
        ? [STEP_NAME.reload, STEP_NAME.endSessions]
        : [STEP_NAME.stop, ...start];
    case 'detachFromVPC':
      return spec.power === 'paused' ? [] : ['open public endpoint'];
    case 'verifyBackup':
      return ['restore newest snapshot', 'check restored data', 'remove restored copy'];
    case 'updatePassword':
    case 'setEnvironment':
    case 'rename':
      return [];
  }
}

/** The replicas of a service, made one after the other. */
function replicasOf({ ha }: ServiceSpec): string[] {
  const others = ha === null ? [] : ha.members.filter(({ n }) => n !== ha.primary);
  return others
    .flatMap(({ n }) => [
      haStepName({ kind: 'seed', n, why: 'new' }),
      haStepName({ kind: 'server', n, step: { kind: 'start' } }),
    ])
    .filter(isStep);
}

const isStep = (name: string | null): name is string => name !== null;

/** The same for a read replica set, whose nodes change one by one. */
function planOfSet(
  kind: OperationKind,
  spec: ServiceSpec,
  nodes: readonly Member[],
  pooler: string[],
): string[] {
  const each = (name: string) => nodes.map(({ n }) => `${name} (node ${n})`);
  switch (kind) {
    case 'create':
      return [
        'start gateway',
        ...nodes.flatMap(({ n }) => [
          `clone primary (node ${n})`,
          `${STEP_NAME.start} (node ${n})`,
        ]),
      ];
    case 'resize':
      return nodes.map(({ n }) => `restart node ${n}`);
    case 'enablePooler':
      return pooler;
    case 'disablePooler':
      return [STEP_NAME.stopPooler];
    case 'delete':
      return spec.power === 'running' || spec.pooler !== null ? each(STEP_NAME.stop) : [];
    default:
      return [];
  }
}
