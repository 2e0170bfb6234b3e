/** The next step of a model service that is one server. Pure. */
import { EXTENSION_OF_ADDON, type SimulatedTransition } from '@howdah/contract';
import type { ServiceSpec } from '../spec.ts';
import * as change from './server-changes.ts';
import { changeBy, SETTLED, type Change, type NextStep, type Situation, STEP } from './steps.ts';
import { rowsAt, writeLog, type ModelService, type ModelSnapshot } from './state.ts';

export function decideServer(situation: Situation): NextStep {
  const { spec, service } = situation;
  const server = service.nodes.find(({ n }) => n === service.primary);
  if (server === undefined) return spec.power === 'paused' ? SETTLED : decideData(situation);
  if (!server.runs) {
    if (spec.power === 'paused') return SETTLED;
    return (
      decideFiles(situation) ??
      changeBy(STEP.start, 'start', (changed, nowMs) => {
        change.startServer(changed, spec, server.n, nowMs);
        return startDetail(spec);
      })
    );
  }
  const stop = (transition: SimulatedTransition, why: string) =>
    changeBy(STEP.stop, transition, (changed, nowMs) => {
      change.stopServer(changed, server.n, nowMs, 'fast');
      return why;
    });
  if (spec.power === 'paused') return stop('stop', 'paused');
  const dropped = decideDropped(situation);
  if (dropped !== null) return dropped;
  if (server.place !== change.placeOf(spec)) return stop('vpc', change.placeWhy(spec));
  const why = change.restartWhy(server, spec);
  if (why !== null) return stop('stop', why);
  return decideRunning(situation, STEP.setPassword) ?? SETTLED;
}

/** A pooler that must not run, or runs in another network. */
export function decidePoolerStop({ spec, service }: Situation): Change | null {
  if (service.pooler === null) return null;
  const why =
    spec.pooler === null
      ? 'disabled'
      : spec.power === 'paused'
        ? 'paused'
        : service.pooler.place === change.placeOf(spec)
          ? null
          : change.placeWhy(spec);
  if (why === null) return null;
  return changeBy(STEP.stopPooler, 'pooler', (changed) => {
    changed.pooler = null;
    changed.ports = [spec.endpoint.port];
    return why;
  });
}

/** The data that a service begins with. @param named how steps are called at this server */
export function decideData(
  { spec, parent, service }: Situation,
  named: (name: string) => string = (name) => name,
): NextStep {
  const { origin } = spec;
  const n = service.primary;
  if (origin === null)
    return changeBy(named(STEP.clone), 'create', (changed, nowMs) => {
      change.addNode(changed, spec, n, 'primary');
      change.writeFiles(changed, spec);
      changed.ports = change.portsOf(spec);
      changed.extensions = spec.addons.map((addon) => EXTENSION_OF_ADDON[addon]);
      changed.snapshots = [initialSnapshot(nowMs)];
      return `PostgreSQL ${change.versionOf(changed)}, simulated`;
    });
  return changeBy(named(STEP.fork), 'fork', (changed, nowMs) => {
    if (parent === null || parent.nodes.length === 0)
      throw new Error(`its parent ${origin.parent} is no longer there`);
    const { atMs, detail } = originMoment(parent, origin.strategy, origin.targetTime, nowMs);
    changed.major = spec.major ?? parent.major;
    change.addNode(changed, spec, n, 'primary');
    change.writeFiles(changed, spec);
    changed.ports = change.portsOf(spec);
    changed.origin = origin.parent;
    changed.commits = [{ atMs: nowMs, rows: rowsAt(parent, atMs) }];
    changed.extensions = [...(parent.extensions ?? [])];
    return detail;
  });
}

function initialSnapshot(nowMs: number): ModelSnapshot {
  return { id: snapshotId(nowMs), kind: 'initial', takenMs: nowMs, rows: 0, verification: null };
}

export function snapshotId(ms: number): string {
  return new Date(ms).toISOString().replaceAll(/[-:.]/g, '');
}

/** The moment of its parent that a fork begins with. @throws Error when no snapshot reaches it */
function originMoment(
  parent: ModelService,
  strategy: 'NOW' | 'LAST_SNAPSHOT' | 'PITR',
  targetTime: string | null,
  nowMs: number,
): { atMs: number; detail: string } {
  const state = parent.stoppedMs === null ? 'running' : 'paused';
  const [newest] = parent.snapshots;
  if (strategy === 'NOW' || newest === undefined)
    return { atMs: nowMs, detail: `of the ${state} parent, simulated` };
  const iso = (ms: number): string => new Date(ms).toISOString();
  if (strategy === 'LAST_SNAPSHOT')
    return { atMs: newest.takenMs, detail: `snapshot of ${iso(newest.takenMs)}` };
  const targetMs = Date.parse(targetTime ?? '');
  const base = parent.snapshots.find(({ takenMs }) => takenMs <= targetMs);
  if (base === undefined) throw new Error(`no snapshot is older than ${targetTime}`);
  return {
    atMs: targetMs,
    detail: `snapshot of ${iso(base.takenMs)}, to be rolled forward to ${targetTime}`,
  };
}

/** Files that must be written before a server starts. */
export function decideFiles(
  { spec, service }: Situation,
  named: (name: string) => string = (name) => name,
): Change | null {
  if (change.areFilesCurrent(service, spec)) return null;
  return changeBy(named(STEP.writeFiles), 'resize', (changed) => {
    change.writeFiles(changed, spec);
    return 'settings follow from the size';
  });
}

export function startDetail({ endpoint }: ServiceSpec): string {
  return `on port ${endpoint.port}, simulated: nothing listens there`;
}

/**
 * What a primary that runs as it must still needs. @param passwordStep the name of that step
 */
export function decideRunning(
  { spec, service }: Situation,
  passwordStep: string,
  named: (name: string) => string = (name) => name,
): Change | null {
  const { firstVerifier } = spec;
  if (!change.areFilesCurrent(service, spec))
    return changeBy(named(STEP.reload), 'vpc', (changed) => {
      change.writeFiles(changed, spec);
      return 'without a restart';
    });
  const created = decideCreated(spec, service, named);
  if (created !== null) return created;
  if (!service.provisioned && firstVerifier !== null)
    return changeBy(passwordStep, null, (changed, nowMs) => {
      Object.assign(changed, { provisioned: true, verifier: firstVerifier, origin: null });
      writeLog(changed, changed.primary, nowMs, 'checkpoint starting: force wait');
      return 'for tsdbadmin';
    });
  if (spec.pooler !== null && service.pooler === null) return startPooler(spec, named);
  return null;
}

/** An extension is dropped before its library goes. */
export function decideDropped(
  { spec: { extension }, service }: Situation,
  named: (name: string) => string = (name) => name,
): Change | null {
  if (extension?.wanted !== 'dropped') return null;
  const { name } = extension;
  if (service.extensions?.includes(name) !== true) return null;
  return changeBy(named(STEP.dropExtension), null, (changed) => {
    changed.extensions = changed.extensions?.filter((other) => other !== name) ?? [];
    return 'with its objects';
  });
}

/** An extension is created once its library is loaded. */
function decideCreated(
  { extension, size, preload }: ServiceSpec,
  service: ModelService,
  named: (name: string) => string,
): Change | null {
  if (extension?.wanted !== 'created') return null;
  const { name } = extension;
  const primary = service.nodes.find(({ n }) => n === service.primary);
  if (primary === undefined || service.extensions?.includes(name) === true) return null;
  if (change.compareSettings(primary, { size, preload }) !== 'current') return null;
  return changeBy(named(STEP.createExtension), null, (changed) => {
    changed.extensions = [...(changed.extensions ?? []), name];
    return `${name}, simulated`;
  });
}

export function startPooler(
  spec: ServiceSpec,
  named: (name: string) => string = (name) => name,
): Change {
  return changeBy(named(STEP.startPooler), 'pooler', (changed) => {
    changed.pooler = { place: change.placeOf(spec) };
    changed.ports = change.portsOf(spec);
    return `on port ${spec.pooler?.port}, simulated`;
  });
}
