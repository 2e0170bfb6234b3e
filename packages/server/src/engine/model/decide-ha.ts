/** The next step of a model service with replicas. Pure. */
import { DRILL_STEP } from '../engine.ts';
import type { HighAvailability, ServiceSpec } from '../spec.ts';
import * as change from './server-changes.ts';
import {
  decideData,
  decideDropped,
  decideFiles,
  decideRunning,
  startDetail,
} from './decide-server.ts';
import * as step from './steps.ts';
import { changeBy, SETTLED, type NextStep, type Situation } from './steps.ts';
import { primaryOf, streamingOf, type ModelNode, type ModelService } from './state.ts';

const { STEP, onServer } = step;

/** The node that can take over from a primary that is dead, or why none can. */
export type Successor = { n: number; detail: string } | { why: string };

export function successorOf(
  service: ModelService,
  wanted: readonly number[],
  { nowMs, cooldownMs }: Pick<Situation, 'nowMs' | 'cooldownMs'>,
): Successor {
  const { lastFailoverMs } = service;
  if (lastFailoverMs !== null && nowMs - lastFailoverMs < cooldownMs)
    return { why: `last failover less than ${cooldownMs / 1000} s ago` };
  const next = service.nodes.find(
    ({ n, data, runs }) =>
      n !== service.primary && data === 'standby' && runs && wanted.includes(n),
  );
  return next === undefined
    ? { why: 'no other member runs and follows' }
    : { n: next.n, detail: 'it has all that was written' };
}

/** The service, its spec, and its servers: the primary and the others. */
type Pair = Situation & {
  readonly ha: HighAvailability;
  readonly wanted: readonly number[];
  readonly primary: ModelNode;
  readonly others: readonly ModelNode[];
};

export function decideHa(situation: Situation, ha: HighAvailability): NextStep {
  const { spec, service } = situation;
  const wanted = change.wantedNodes(spec, service);
  const primary = service.nodes.find(({ n }) => n === service.primary);
  if (spec.power === 'paused') return decidePaused(situation, primary);
  const named = (name: string): string => onServer(name, service.primary);
  if (primary === undefined) return decideData(situation, named);
  const others = service.nodes.filter((node) => node !== primary);
  const pair: Pair = { ...situation, ha, wanted, primary, others };
  return decideFailover(pair) ?? decidePrimary(pair) ?? decideOthers(pair) ?? decidePlanned(pair);
}

/** The primary stops first: a primary that stops sends all its WAL to the standbys. */
function decidePaused({ service }: Situation, primary: ModelNode | undefined): NextStep {
  const others = service.nodes.filter((node) => node !== primary);
  const running = [...(primary === undefined ? [] : [primary]), ...others].find(({ runs }) => runs);
  if (running !== undefined)
    return changeBy(onServer(STEP.stop, running.n), 'stop', (changed, nowMs) => {
      change.stopServer(changed, running.n, nowMs, 'fast');
      return 'paused';
    });
  if (service.gateway === null) return SETTLED;
  return changeBy(STEP.stopGateway, null, (changed) => {
    changed.gateway = null;
    return 'paused';
  });
}

/** First: no second writer, and another primary if this one is dead. */
function decideFailover(pair: Pair): NextStep | null {
  const { service, primary, others, wanted } = pair;
  const secondWriter = others.find(({ data, runs }) => data === 'primary' && runs);
  if (secondWriter !== undefined)
    return changeBy(step.stopSecondWriterName(secondWriter.n), null, (changed, nowMs) => {
      change.stopServer(changed, secondWriter.n, nowMs, 'killed');
      return 'it follows the primary from now on';
    });
  if (primary.runs || !service.provisioned) return null;
  const successor = successorOf(service, wanted, pair);
  if ('why' in successor) return null;
  return {
    kind: 'failover',
    name: STEP.failOver,
    transition: 'failover',
    to: successor.n,
    why: successor.detail,
  };
}

/** The primary and its gateway, in the desired network. */
function decidePrimary(pair: Pair): NextStep | null {
  const { spec, service, primary, ha } = pair;
  const named = (name: string): string => onServer(name, primary.n);
  if (!primary.runs) return decideFiles(pair, named) ?? startPrimary(pair);
  if (primary.data === 'standby')
    return changeBy(STEP.recordedPrimary, 'failover', (changed, nowMs) => {
      change.changePrimary(changed, primary.n, nowMs);
      return `member ${primary.n}`;
    });
  if (service.gateway === null)
    return changeBy(STEP.gatewayBefore, null, (changed) => {
      change.openGateway(changed, spec);
      return startDetail(spec);
    });
  if (primary.place !== change.placeOf(spec))
    return changeBy(STEP.move, 'vpc', (changed, nowMs) => {
      change.stopServer(changed, primary.n, nowMs, 'fast');
      change.writeFiles(changed, spec);
      change.startServer(changed, spec, primary.n, nowMs);
      change.openGateway(changed, spec);
      return change.placeWhy(spec);
    });
  const dropped = decideDropped(pair, named);
  if (dropped !== null) return dropped;
  // Before a standby goes, no write waits for it any more.
  if (service.sync > ha.sync) return setSync(pair);
  const own = decideRunning(pair, named(STEP.setPassword), named);
  if (own !== null) return own;
  if (change.sameNetworks(service.gateway.allowedNetworks, spec.allowedNetworks)) return null;
  return changeBy(STEP.allowNetworks, 'vpc', (changed) => {
    change.openGateway(changed, spec);
    return '0 sessions of others ended';
  });
}

function setSync({ ha, primary }: Pair): NextStep {
  return changeBy(onServer(STEP.reload, primary.n), null, (changed) => {
    changed.sync = ha.sync;
    return 'without a restart';
  });
}

function startPrimary({ spec, service, primary }: Pair): NextStep {
  const name =
    service.gateway === null
      ? step.startWithGatewayName(primary.n)
      : onServer(STEP.start, primary.n);
  return changeBy(name, 'start', (changed, nowMs) => {
    change.startServer(changed, spec, primary.n, nowMs);
    change.openGateway(changed, spec);
    return startDetail(spec);
  });
}

/** The other servers: which there are, and that each follows the primary. */
function decideOthers(pair: Pair): NextStep | null {
  const { spec, service, ha, wanted, primary, others } = pair;
  const extra = others.find(({ n }) => !wanted.includes(n));
  if (extra !== undefined)
    return changeBy(step.retireName(extra.n), 'setHA', (changed) => {
      changed.nodes = changed.nodes.filter(({ n }) => n !== extra.n);
      return 'as requested';
    });
  const why = change.restartWhy(primary, spec);
  const isLarger = change.compareSettings(primary, spec) === 'larger';
  if (why !== null && (isLarger || others.length === 0))
    return changeBy(STEP.restartPrimary, 'resize', (changed, nowMs) => {
      change.stopServer(changed, primary.n, nowMs, 'fast');
      change.startServer(changed, spec, primary.n, nowMs);
      return why;
    });
  for (const n of wanted.filter((other) => other !== primary.n)) {
    const found = decideStandby(
      spec,
      n,
      others.find((other) => other.n === n),
    );
    if (found !== null) return found;
  }
  return service.sync < ha.sync ? setSync(pair) : null;
}

function decideStandby(spec: ServiceSpec, n: number, node: ModelNode | undefined): NextStep | null {
  if (node === undefined || node.data === 'primary')
    return changeBy(step.seedName(n), 'setHA', (changed) => {
      change.addNode(changed, spec, n, 'standby');
      return node === undefined ? 'new' : 'it was the primary before';
    });
  if (!node.runs)
    return changeBy(onServer(STEP.start, n), 'start', (changed, nowMs) => {
      change.startServer(changed, spec, n, nowMs);
      return 'it follows the primary';
    });
  const isPlaced = node.place === change.placeOf(spec);
  const why = isPlaced ? change.restartWhy(node, spec) : change.placeWhy(spec);
  if (why === null) return null;
  return changeBy(onServer(STEP.stop, n), 'stop', (changed, nowMs) => {
    change.stopServer(changed, n, nowMs, 'fast');
    return why;
  });
}

/** Planned changes, once all servers are well. */
function decidePlanned({ spec, ha, service, primary }: Pair): NextStep {
  const [successor] = streamingOf(service);
  if (successor === undefined || primaryOf(service)?.runs !== true) return SETTLED;
  const { n: to } = successor;
  const switchOver = (why: string): NextStep => ({
    kind: 'switchover',
    name: step.switchOverName(to),
    transition: 'switchover',
    to,
    why,
  });
  const why = change.restartWhy(primary, spec);
  if (why !== null) return switchOver(why);
  if (ha.switchover) return switchOver('as requested');
  if (ha.drill === null) return SETTLED;
  return { kind: 'drill', name: DRILL_STEP, transition: 'drill', to, why: ha.drill };
}
