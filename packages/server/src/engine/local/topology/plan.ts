/**
 * The steps that a change takes if nothing is in the way: the answer to a dry run. Those of one
 * server are decided as the real ones are, from an assumed state on. The steps of replicas and sets
 * are named here, since their real ones depend on what is observed.
 */
import { existsSync } from 'node:fs';
import { MAX_REPLICAS, type OperationKind } from '@howdah/contract';
import type { Lifecycle } from '../../engine.ts';
import { chooseServers, numberNodes } from '../../records.ts';
import type { ServiceSpec } from '../../spec.ts';
import type { Layout } from '../host/layout.ts';
import { haStepName } from './decide-ha.ts';
import { decide, STEP_NAME, type Observation } from './decide.ts';
import { afterStep, POOLER_WELL, WELL } from './simulate.ts';

/**
 * Plans by what exists of a service below a data directory.
 *
 * @param movesIntoVpc whether a VPC is a network that servers run in
 */
export function createPlan(layout: Layout, movesIntoVpc: boolean): Lifecycle['plan'] {
  return (kind, spec, running, keepsSize) =>
    planOf(kind, spec, running, keepsSize, {
      hasGateway: existsSync(layout.gateway(spec.id).root),
      primary: layout.primaryOf(spec.id),
      movesIntoVpc,
      servers: SERVER_NUMBERS.filter((n) => existsSync(layout.member(spec.id, n).data)),
    });
}

/** The numbers that the servers of a service with replicas can have. */
const SERVER_NUMBERS = Array.from({ length: MAX_REPLICAS + 1 }, (_, n) => n);

/** The parts of a service that exist already: its gateway, and its servers by number. */
type Existing = {
  hasGateway: boolean;
  primary: number;
  servers: readonly number[];
  movesIntoVpc: boolean;
};
const NOTHING: Existing = { hasGateway: false, primary: 0, servers: [], movesIntoVpc: false };

/**
 * @param running whether its server runs already; of one that is to be made: whether a spare
 *   becomes it
 * @param keepsSize whether a resize changes nothing but the storage quota, for which no server
 *   restarts
 * @param there what exists of a service that gets replicas, and what a VPC is here
 */
export function planOf(
  kind: OperationKind,
  spec: ServiceSpec,
  running: boolean,
  keepsSize = false,
  there: Existing = NOTHING,
): string[] {
  if (spec.set !== null) return planOfSet(kind, spec, numberNodes(spec.set.nodes));
  switch (kind) {
    case 'create':
    case 'fork': {
      const steps = stepsOf(spec, running ? { ...WELL, provisioned: false } : ABSENT);
      // Replicas are made before the pooler is started.
      const first = steps.filter((step) => step !== STEP_NAME.startPooler);
      return [...first, ...replicasOf(spec), ...steps.slice(first.length)];
    }
    case 'start':
    case 'restore':
    case 'repair':
      return stepsOf(spec, STOPPED);
    case 'stop':
    case 'delete':
      return running ? stepsOf(spec, withPooler(spec)) : [];
    case 'resize':
      return stepsOf(spec, {
        ...(running ? withPooler(spec) : STOPPED),
        ...(running ? { server: { ...RUNNING, sizeCurrent: keepsSize } } : {}),
        filesCurrent: false,
      });
    case 'enablePooler':
      return running ? stepsOf(spec, WELL) : [];
    case 'disablePooler':
      return running ? stepsOf(spec, { ...WELL, pooler: POOLER_WELL }) : [];
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
    case 'detachFromVPC':
      return running ? stepsOf(spec, inOtherNetwork(spec, there.movesIntoVpc)) : [];
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

const RUNNING = { phase: 'ready', sizeCurrent: true, placed: true } as const;
const STOPPED: Observation = { ...WELL, server: null, connected: false };
const ABSENT: Observation = { ...STOPPED, directory: 'absent', provisioned: false };

const withPooler = ({ pooler }: ServiceSpec): Observation => ({
  ...WELL,
  pooler: pooler === null ? null : POOLER_WELL,
});

/** A service that runs in the network that it must leave. */
function inOtherNetwork(spec: ServiceSpec, movesIntoVpc: boolean): Observation {
  const moves = spec.vpc === null ? movesIntoVpc : spec.vpc.address !== null;
  const seen = withPooler(spec);
  if (!moves)
    return { ...seen, filesCurrent: false, disallowedSessions: spec.vpc === null ? 0 : 1 };
  return {
    ...seen,
    server: { ...RUNNING, placed: false },
    pooler: seen.pooler === null ? null : { ...seen.pooler, placed: false },
    filesCurrent: false,
  };
}

/** A decision settles within this many steps. */
const MOST_STEPS = 30;

/** The names of the steps that a service of one server takes from an assumed state on. */
function stepsOf(spec: ServiceSpec, from: Observation): string[] {
  const placed = { ...spec, firstVerifier: spec.firstVerifier ?? '', ha: null, set: null };
  const steps: string[] = [];
  let seen = from;
  for (let round = 0; round < MOST_STEPS; round++) {
    const step = decide(placed, seen);
    if (step.kind === 'settled' || step.kind === 'refuse') break;
    if (step.kind !== 'wait') steps.push(STEP_NAME[step.kind]);
    seen = afterStep(seen, step);
  }
  return steps;
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
function planOfSet(kind: OperationKind, spec: ServiceSpec, nodes: readonly number[]): string[] {
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
      return [STEP_NAME.startPooler];
    case 'disablePooler':
      return [STEP_NAME.stopPooler];
    case 'delete':
      return spec.power === 'running' || spec.pooler !== null ? each(STEP_NAME.stop) : [];
    default:
      return [];
  }
}
