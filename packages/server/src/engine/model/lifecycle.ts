/** One step of a model service towards its spec or its removal, and the plan of a change. */
import type { OperationKind } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import type { BeginStep, Lifecycle, Seen, Verdict } from '../engine.ts';
import type { RunStep } from '../run-step.ts';
import { TRIAL_STEP, UPGRADE_STEPS, type ServiceSpec } from '../spec.ts';
import * as change from './server-changes.ts';
import { decide } from './decide.ts';
import { reachTransition, waitMsOf, type Model, type Reached } from './model.ts';
import { type NextStep, type Situation, STEP, VERIFY_STEPS } from './steps.ts';
import { adoptPrimary, changePrimary } from './primary.ts';
import { isPresent, newService, primaryOf, streamingOf, type ModelService } from './state.ts';

/** Whether it accepts connections, whether anything of it exists, and whether it is provisioned. */
function seenOf(service: ModelService | null): Seen {
  return {
    reachable: service !== null && isReachable(service),
    present: hasData(service),
    provisioned: service?.provisioned === true,
  };
}

const hasData = (service: ModelService | null): boolean => service !== null && isPresent(service);

function isReachable(service: ModelService): boolean {
  const { parent, gateway, nodes, sync } = service;
  if (parent !== null)
    return gateway !== null && nodes.some(({ runs, isServing }) => runs && isServing);
  const primary = primaryOf(service);
  if (primary?.runs !== true || primary.data !== 'primary') return false;
  return gateway === null ? true : streamingOf(service).length >= sync;
}

/** Whether the server that clients reach runs; that of a set is its gateway. */
export function runs(service: ModelService | null): boolean {
  if (service === null) return false;
  return service.parent === null ? primaryOf(service)?.runs === true : service.gateway !== null;
}

function situationOf({ state, clock, policy }: Model, spec: ServiceSpec): Situation {
  const parentId = spec.set?.parent ?? spec.origin?.parent ?? null;
  return {
    spec,
    service: state.find(spec.id) ?? newService(spec.id),
    parent: parentId === null ? null : state.find(parentId),
    nowMs: clock.nowMs(),
    cooldownMs: policy.failoverCooldownMs,
  };
}

/** Makes one step towards the spec. In turn only. */
export async function convergeOnce(
  model: Model,
  desired: ServiceSpec,
  begin: BeginStep,
): Promise<Verdict> {
  const { state } = model;
  const { id } = desired;
  const spec = await adoptPrimary(model, desired);
  model.specs.set(id, spec);
  const next = decide(situationOf(model, spec));
  const seen = seenOf(state.find(id));
  switch (next.kind) {
    case 'settled':
      if ((state.find(id)?.pending ?? null) !== null)
        await state.change(id, (service) => {
          service.pending = null;
        });
      return { did: null, detail: null, seen, outcome: 'settled' };
    case 'wait':
      return { did: null, detail: next.why, seen, outcome: 'again', waitMs: next.waitMs };
    case 'refuse':
      return { did: null, detail: null, seen, outcome: 'failed', reason: next.why };
    default: {
      await begin(next.name, seen);
      const reached = await reachTransition(model, id, next.name, next.transition);
      if (reached.kind !== 'go') return notYet(model, next.name, seen, reached);
      return perform(model, next.name, seen, id, () => applyStep(model, spec, next));
    }
  }
}

function notYet(
  model: Model,
  name: string,
  seen: Seen,
  reached: Exclude<Reached, { kind: 'go' }>,
): Verdict {
  if (reached.kind === 'fail') return failedVerdict(name, seen, reached.why);
  const detail = `simulated delay: ${Math.ceil(reached.leftMs / 1000)} s left`;
  const waitMs = waitMsOf(model, reached.leftMs);
  return { did: null, detail, seen, outcome: 'again', waitMs };
}

function failedVerdict(name: string, seen: Seen, why: string): Verdict {
  const failed = { did: name, detail: why, seen, outcome: 'failed' } as const;
  // Data that cannot be copied is not copied again.
  const isFinal = name.startsWith(UPGRADE_STEPS[0]);
  return { ...failed, reason: `${name}: ${why}`, ...(isFinal ? { isFinal } : {}) };
}

async function perform(
  { state }: Model,
  name: string,
  seen: Seen,
  id: string,
  work: () => Promise<string>,
): Promise<Verdict> {
  try {
    const detail = await work();
    return { did: name, detail, seen: seenOf(state.find(id)), outcome: 'again', waitMs: 0 };
  } catch (error) {
    return failedVerdict(name, seen, messageOf(error));
  }
}

function applyStep(
  model: Model,
  spec: ServiceSpec,
  next: Extract<NextStep, { name: string }>,
): Promise<string> {
  if (next.kind !== 'change') return changePrimary(model, spec, next);
  return model.state.change(spec.id, (service) => {
    service.pending = null;
    return next.apply(service, model.clock.nowMs());
  });
}

/** Makes one step towards the removal of a service. In turn only. */
export async function removeOnce(model: Model, id: string, begin: BeginStep): Promise<Verdict> {
  const { state, clock, specs } = model;
  specs.delete(id);
  const service = state.find(id);
  const present = hasData(service);
  const seen: Seen = { reachable: false, present, provisioned: false };
  const forks = state.forksOf(id);
  if (forks.length > 0) {
    const detail = `waiting for ${forks.map((fork) => fork.id).join(', ')}, being forked from it`;
    return { did: null, detail, seen, outcome: 'again', waitMs: 500 };
  }
  if (service !== null && (service.nodes.some((node) => node.runs) || service.gateway !== null)) {
    await begin(STEP.stop, seen);
    return perform(model, STEP.stop, seen, id, () =>
      state.change(id, (changed) => {
        for (const node of changed.nodes.filter((one) => one.runs))
          change.stopServer(changed, node.n, clock.nowMs(), 'fast');
        Object.assign(changed, { pooler: null, gateway: null });
        return 'deleted';
      }),
    );
  }
  if (present) {
    await begin(STEP.removeData, seen);
    const reached = await reachTransition(model, id, STEP.removeData, 'delete');
    if (reached.kind !== 'go') return notYet(model, STEP.removeData, seen, reached);
    return perform(model, STEP.removeData, seen, id, async () => {
      await state.remove(id);
      return 'simulated';
    });
  }
  if (service !== null) await state.remove(id);
  return { did: null, detail: null, seen, outcome: 'settled' };
}

/** Tries an upgrade, which always succeeds. */
export async function tryOnce(
  { state }: Model,
  { id }: ServiceSpec,
  to: number,
  runStep: RunStep,
  signal: AbortSignal,
): Promise<void> {
  await runStep(TRIAL_STEP, async () => {
    signal.throwIfAborted();
    if (!hasData(state.find(id))) throw new Error('it has no data');
    return `PostgreSQL ${to}, simulated`;
  });
}

const MAX_PLANNED_STEPS = 200;

/** The steps of a change if nothing prevents them: decisions, followed to the end. */
export function planOf(
  model: Model,
  ...[kind, wanted, running]: Parameters<Lifecycle['plan']>
): string[] {
  if (kind === 'verifyBackup') return [...VERIFY_STEPS];
  if (kind === 'tryUpgrade') return [TRIAL_STEP];
  if (WITHOUT_STEPS.has(kind)) return [];
  const spec = kind === 'stop' || kind === 'delete' ? paused(wanted) : wanted;
  const situation = situationOf(model, spec);
  const before =
    model.state.find(spec.id) === null && running ? assumed(situation, spec) : situation.service;
  return follow({ ...situation, service: before }).names;
}

const WITHOUT_STEPS: ReadonlySet<OperationKind> = new Set([
  'runBackup',
  'updatePassword',
  'setEnvironment',
  'setPurpose',
  'rename',
  'setExpiry',
  'setBackupRetention',
]);

const paused = (spec: ServiceSpec): ServiceSpec => ({ ...spec, power: 'paused' });

/** A service that runs and that this engine does not know: a single server, of the same size. */
function assumed(situation: Situation, spec: ServiceSpec): ModelService {
  const plain: ServiceSpec = { ...spec, ha: null, pooler: null, origin: null, power: 'running' };
  return follow({ ...situation, spec: plain }).service;
}

/** Makes steps on a copy until nothing is left to do. */
function follow(situation: Situation): { names: string[]; service: ModelService } {
  const { nowMs } = situation;
  const service = structuredClone(situation.service);
  let { spec } = situation;
  const names: string[] = [];
  while (names.length < MAX_PLANNED_STEPS) {
    const next = decide({ ...situation, spec, service });
    if (!('name' in next)) break;
    names.push(next.name);
    try {
      if (next.kind === 'change') next.apply(service, nowMs);
      else {
        const from = service.primary;
        change.changePrimary(service, next.to, nowMs);
        const isPlanned = next.kind === 'switchover' || next.why === 'switchover';
        if (isPlanned) change.nodeOf(service, from).data = 'standby';
        if (spec.ha !== null)
          spec = { ...spec, ha: { ...spec.ha, switchover: false, drill: null } };
      }
    } catch {
      break; // it would fail here
    }
  }
  return { names, service };
}
