/**
 * The steps that a change takes if nothing is in the way: the answer to a dry run. decide.ts and
 * decide-ha.ts choose the real ones.
 */
import { existsSync } from 'node:fs';
import { MAX_REPLICAS, type OperationKind } from '@howdah/contract';
import type { Lifecycle } from '../../engine.ts';
import { chooseServers, numberNodes } from '../../records.ts';
import type { ServiceSpec } from '../../spec.ts';
import type { Layout } from '../host/layout.ts';
import { haStepName } from './decide-ha.ts';
import { STEP_NAME } from './decide.ts';

/** Plans by what exists of a service below a data directory. */
export function createPlan(layout: Layout): Lifecycle['plan'] {
  return (kind, spec, running, keepsSize) =>
    planOf(kind, spec, running, keepsSize, {
      hasGateway: existsSync(layout.gateway(spec.id).root),
      primary: layout.primaryOf(spec.id),
      servers: SERVER_NUMBERS.filter((n) => existsSync(layout.member(spec.id, n).data)),
    });
}

/** The numbers that the servers of a service with replicas can have. */
const SERVER_NUMBERS = Array.from({ length: MAX_REPLICAS + 1 }, (_, n) => n);

/** The parts of a service that exist already: its gateway, and its servers by number. */
type Existing = { hasGateway: boolean; primary: number; servers: readonly number[] };
const NOTHING: Existing = { hasGateway: false, primary: 0, servers: [] };

/**
 * @param running whether its server runs already; of one that is to be made: whether a spare
 *   becomes it
 * @param keepsSize whether a resize changes nothing but the storage quota, for which no server
 *   restarts
 * @param there what exists of a service that gets replicas
 */
export function planOf(
  kind: OperationKind,
  spec: ServiceSpec,
  running: boolean,
  keepsSize = false,
  there: Existing = NOTHING,
): string[] {
  const pooler = spec.pooler === null ? [] : [STEP_NAME.startPooler];
  if (spec.set !== null) return planOfSet(kind, spec, numberNodes(spec.set.nodes), pooler);
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
      return spec.ha === null
        ? []
        : [
            ...(there.hasGateway || !running ? [] : [GATEWAY_BEFORE_PRIMARY]),
            ...replicasOf(spec, there),
          ];
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
      return [
        'restore snapshot',
        'replay WAL',
        'compare catalogs',
        'check tables and indexes',
        'check page checksums',
      ];
    case 'updatePassword':
    case 'setEnvironment':
    case 'rename':
      return [];
  }
}

const GATEWAY_BEFORE_PRIMARY = haStepName({ kind: 'moveToGateway' }) ?? '';

/** The missing replicas of a service, made one after the other. */
function replicasOf({ ha }: ServiceSpec, { primary, servers }: Existing = NOTHING): string[] {
  if (ha === null) return [];
  const wanted = chooseServers(primary, servers, ha.replicas + 1);
  const missing = wanted.filter((n) => n !== primary && !servers.includes(n));
  return missing
    .flatMap((n) => [
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
  nodes: readonly number[],
  pooler: string[],
): string[] {
  const each = (name: string) => nodes.map((n) => `${name} (node ${n})`);
  switch (kind) {
    case 'create':
      return [
        'start gateway',
        ...nodes.flatMap((n) => [`clone primary (node ${n})`, `${STEP_NAME.start} (node ${n})`]),
      ];
    case 'resize':
      return nodes.map((n) => `restart node ${n}`);
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
