/**
 * The next step of a model service: a pure function of the desired state and of what exists. A dry
 * run follows it to the end.
 */
import { decideHa } from './decide-ha.ts';
import { decidePoolerStop, decideServer, startDetail, startPooler } from './decide-server.ts';
import * as step from './steps.ts';
import {
  type NextStep,
  type Situation,
  changeBy,
  SETTLED,
  type Change,
  onServer,
  seedNodeName,
} from './steps.ts';
import { primaryOf, type ModelNode, type ModelService, rowsAt } from './state.ts';
import { type ServiceSpec, UPGRADE_STEPS, type Upgrade } from '../spec.ts';
import * as change from './server-changes.ts';

export function decide(situation: Situation): NextStep {
  const { spec } = situation;
  const stop = decidePoolerStop(situation);
  if (stop !== null) return stop;
  const upgrade = decideUpgrade(situation) ?? decideNodes(situation);
  if (upgrade !== null) return upgrade;
  const why = whyNotStartable(situation);
  if (why !== null && spec.power === 'running') return { kind: 'refuse', why };
  if (spec.set !== null) return decideSet(situation, spec.set.parent);
  return spec.ha === null ? decideServer(situation) : decideHa(situation, spec.ha);
}

/**
 * Data of one major version of PostgreSQL is not started with another, and lost data is not
 * replaced by an empty database.
 */
function whyNotStartable({ spec, service }: Situation): string | null {
  if (spec.set === null && spec.recovery === null && primaryOf(service) === undefined) {
    if (spec.provisioned || service.provisioned)
      return 'its data is missing: mount its disk, or bring its data back';
  }
  if (spec.upgrade !== null) return null;
  return spec.major === null || service.major === null || spec.major === service.major
    ? null
    : `its data is of PostgreSQL ${service.major}, and its record says ${spec.major}`;
}

// The next step of a model read replica set. Pure.

const { STEP, onNode } = step;
const WAIT_MS = 200;

/** Whether the gateway of a set must route to a node. */
function isEligible(node: ModelNode, spec: ServiceSpec): boolean {
  return node.runs && node.place === change.placeOf(spec);
}

function decideSet(situation: Situation, parentId: string): NextStep {
  const { spec, service } = situation;
  if (spec.power === 'paused') return decidePaused(service);
  const { gateway } = service;
  if (service.parent === null)
    return changeBy(STEP.makeDirectory, null, (changed) => {
      Object.assign(changed, { parent: parentId, ports: change.portsOf(spec) });
      return 'simulated';
    });
  if (gateway !== null && gateway.place !== change.placeOf(spec))
    return changeBy(STEP.stopGateway, null, (changed) => {
      changed.gateway = null;
      return change.placeWhy(spec);
    });
  if (gateway === null)
    return changeBy(STEP.startGateway, null, (changed) => {
      change.openGateway(changed, spec);
      return startDetail(spec);
    });
  if (!change.sameNetworks(gateway.allowedNetworks, spec.allowedNetworks))
    return changeBy(STEP.allowNetworks, 'vpc', (changed) => {
      change.openGateway(changed, spec);
      return '0 sessions of others ended';
    });
  if (service.nodes.some((node) => node.isServing !== isEligible(node, spec)))
    return routeNodes(spec);
  return decideNodesOfSet(situation);
}

function decidePaused(service: ModelService): NextStep {
  const running = service.nodes.find(({ runs }) => runs);
  if (running !== undefined)
    return changeBy(onNode(STEP.stop, running.n), 'stop', (changed, nowMs) => {
      change.stopServer(changed, running.n, nowMs, 'fast');
      return 'paused';
    });
  if (service.gateway === null) return SETTLED;
  return changeBy(STEP.stopGateway, null, (changed) => {
    changed.gateway = null;
    return 'paused';
  });
}

function routeNodes(spec: ServiceSpec): NextStep {
  return changeBy(STEP.routeToNodes, null, (changed) => {
    for (const node of changed.nodes) node.isServing = isEligible(node, spec);
    const serving = changed.nodes.filter(({ isServing }) => isServing).map(({ n }) => n);
    return serving.length === 0 ? 'none' : serving.join(', ');
  });
}

function decideNodesOfSet({ spec, service, parent }: Situation): NextStep {
  const isReady = parent !== null && primaryOf(parent)?.runs === true;
  for (const n of change.wantedNodes(spec, service)) {
    const node = service.nodes.find((candidate) => candidate.n === n);
    if (node === undefined) {
      if (!isReady)
        return { kind: 'wait', why: `node ${n} waits for the primary`, waitMs: WAIT_MS };
      return changeBy(step.seedNodeName(n), 'readReplicaSet', (changed) => {
        change.addNode(changed, spec, n, 'standby');
        return 'new';
      });
    }
    if (!node.runs)
      return changeBy(onNode(STEP.start, n), 'start', (changed, nowMs) => {
        change.startServer(changed, spec, n, nowMs);
        return 'it follows the primary';
      });
  }
  if (spec.pooler !== null && service.pooler === null)
    return isReady
      ? startPooler(spec)
      : { kind: 'wait', why: 'its pooler waits for the primary', waitMs: WAIT_MS };
  const late = service.nodes.find(
    (node) => node.place !== change.placeOf(spec) || change.restartWhy(node, spec) !== null,
  );
  if (late === undefined) return SETTLED;
  return changeBy(step.restartNodeName(late.n), 'resize', (changed, nowMs) => {
    change.stopServer(changed, late.n, nowMs, 'fast');
    change.startServer(changed, spec, late.n, nowMs);
    return change.restartWhy(late, spec) ?? change.placeWhy(spec);
  });
}

// The steps of an upgrade of a model service, and of its undo.

/** The next step of a requested upgrade; null: nothing is left of it to do. */
function decideUpgrade({ spec, service }: Situation): Change | null {
  const { upgrade, ha } = spec;
  if (upgrade === null || spec.power === 'paused') return null;
  const isInUse = service.upgrade === upgrade.id;
  if (isInUse !== upgrade.undo) return null;
  const named = (name: string): string => (ha === null ? name : onServer(name, service.primary));
  const isConverted = upgrade.undo || service.converted === upgrade.id;
  return isConverted ? exchange(upgrade, named) : convert(upgrade, named);
}

function convert({ id, to }: Upgrade, named: (name: string) => string): Change {
  return changeBy(named(UPGRADE_STEPS[0]), 'upgrade', (changed, nowMs) => {
    stopAll(changed, nowMs);
    changed.converted = id;
    return `PostgreSQL ${to}, simulated`;
  });
}

function exchange({ id, to, undo }: Upgrade, named: (name: string) => string): Change {
  return changeBy(named(UPGRADE_STEPS[1]), null, (changed, nowMs) => {
    stopAll(changed, nowMs);
    const { major, commits, snapshots, former } = changed;
    const comesBack = undo && former?.id === id ? former : null;
    if (undo && comesBack === null) throw new Error('there is no data from before the upgrade');
    changed.nodes = changed.nodes.filter(({ n }) => n === changed.primary);
    Object.assign(changed, {
      major: to,
      commits: comesBack?.commits ?? [{ atMs: nowMs, rows: rowsAt(changed, nowMs) }],
      snapshots: comesBack?.snapshots ?? [],
      former: undo ? null : { id, major, commits, snapshots },
      upgrade: undo ? null : id,
      converted: null,
    });
    return 'simulated';
  });
}

function stopAll(service: ModelService, nowMs: number): void {
  for (const { n } of service.nodes.filter(({ runs }) => runs))
    change.stopServer(service, n, nowMs, 'fast');
  service.pooler = null;
}

/** The nodes of a read replica set are made again from a primary of another version. */
function decideNodes({ spec, service }: Situation): Change | null {
  const { major, set } = spec;
  const [first] = service.nodes;
  if (set === null || first === undefined || spec.power === 'paused') return null;
  if (major === null || service.major === null || major === service.major) return null;
  return changeBy(seedNodeName(first.n), 'readReplicaSet', (changed) => {
    changed.major = major;
    return `its primary runs PostgreSQL ${major}`;
  });
}
