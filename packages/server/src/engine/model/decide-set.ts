/** The next step of a model read replica set. Pure. */
import type { ServiceSpec } from '../spec.ts';
import * as change from './changes.ts';
import { startDetail, startPooler } from './decide-server.ts';
import { changeBy, SETTLED, type NextStep, type Situation } from './next-step.ts';
import { primaryOf, type ModelNode, type ModelService } from './state.ts';
import * as step from './steps.ts';

const { STEP, onNode } = step;
const WAIT_MS = 200;

/** Whether the gateway of a set must route to a node. */
export function isEligible(node: ModelNode, spec: ServiceSpec): boolean {
  return node.runs && node.place === change.placeOf(spec);
}

export function decideSet(situation: Situation, parentId: string): NextStep {
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
  return decideNodes(situation);
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

function decideNodes({ spec, service, parent }: Situation): NextStep {
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
