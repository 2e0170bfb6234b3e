/**
 * Changes of the primary of a model service: failover, switchover and drill. The control plane
 * records the new primary before it is one here. No other module uses the PrimaryStore.
 */
import type { OperationStep } from '@howdah/contract';
import type { ServiceSpec } from '../spec.ts';
import * as change from './changes.ts';
import { successorOf, type Successor } from './decide-ha.ts';
import { reachTransition, type Model } from './model.ts';
import type { PrimaryChange } from './next-step.ts';
import { between } from './random.ts';
import { primaryOf, streamingOf, type ModelService } from './state.ts';
import { STEP } from './steps.ts';

/** How far the recorded primaries are known. It need not survive a restart. */
export type Primaries = {
  /** Services whose recorded primary was taken from a spec since the engine was made. */
  readonly adopted: Set<string>;
  /** Services of which it is not known which primary is recorded. */
  readonly unsure: Set<string>;
};

export function createPrimaries(): Primaries {
  return { adopted: new Set(), unsure: new Set() };
}

/**
 * Makes the recorded primary the one of the service. A spec may have been read before the last
 * failover: after the first one, the engine knows better.
 */
export async function adoptPrimary(
  { state, primaries }: Model,
  { adopted, unsure }: Primaries,
  { id, ha }: ServiceSpec,
): Promise<void> {
  if (ha === null) return;
  if (unsure.has(id)) {
    const recorded = await primaries.primary(id);
    if (recorded === null) throw gone(id);
    await setPrimary(state, id, recorded);
    unsure.delete(id);
  } else if (!adopted.has(id) && (state.find(id)?.primary ?? 0) !== ha.primary)
    await setPrimary(state, id, ha.primary);
  if (state.find(id) !== null) adopted.add(id);
}

const gone = (id: string): Error =>
  new Error(`service ${id} is not in the metadata database any more`);

const setPrimary = (state: Model['state'], id: string, n: number): Promise<void> =>
  state.change(id, (service) => {
    service.primary = n;
  });

/** Records another primary, then makes it one. @throws Error when another one is recorded */
async function recordAndChange(
  { state, clock, primaries }: Model,
  { unsure }: Primaries,
  { id, primary: from }: Pick<ModelService, 'id' | 'primary'>,
  to: number,
  alsoChange: (service: ModelService, nowMs: number) => void,
): Promise<void> {
  const recorded = await primaries.recordPrimary(id, from, to).catch((error: unknown) => {
    unsure.add(id);
    throw error;
  });
  if (recorded === null) throw gone(id);
  if (recorded !== to) {
    await setPrimary(state, id, recorded);
    throw new Error(
      `the metadata database names member ${recorded} as the primary, not member ${to}`,
    );
  }
  await state.change(id, (service) => {
    const nowMs = clock.nowMs();
    service.pending = null;
    change.changePrimary(service, to, nowMs);
    alsoChange(service, nowMs);
  });
}

/** The primary is dead: another node becomes it, if one can. In turn only. */
async function takeOver(
  model: Model,
  known: Primaries,
  id: string,
  wanted: readonly number[],
): Promise<Successor> {
  const { state, clock, primaries, policy, realMs } = model;
  const service = state.find(id);
  if (service === null || primaryOf(service)?.runs === true)
    return { why: `member ${service?.primary ?? 0} runs` };
  const from = service.primary;
  await primaries.begin(id);
  const steps: OperationStep[] = [];
  const note = (name: string, startedMs: number, detail: string): void => {
    const [started, finished] = [startedMs, realMs()].map((ms) => new Date(ms).toISOString());
    steps.push({ name, started: started ?? '', finished: finished ?? null, detail });
  };
  note('fence', realMs(), `nothing of member ${from} is left`);
  const times = { nowMs: clock.nowMs(), restMs: policy.failoverRestMs };
  const successor = successorOf(service, wanted, times);
  if ('why' in successor) {
    await primaries.end(id, steps, successor.why);
    return successor;
  }
  const startedMs = realMs();
  await recordAndChange(model, known, service, successor.n, (changed, nowMs) => {
    changed.lastFailoverMs = nowMs;
  });
  note(STEP.recordedPrimary, startedMs, `member ${successor.n}: ${successor.detail}`);
  await primaries.end(id, steps, null);
  return successor;
}

/** In order: the primary stops and follows the new one. In turn only. */
async function switchOver(
  model: Model,
  known: Primaries,
  id: string,
  { to, why }: Pick<PrimaryChange, 'to' | 'why'>,
): Promise<string> {
  const service = model.state.find(id);
  if (service === null || !streamingOf(service).some(({ n }) => n === to))
    throw new Error(`member ${to} does not follow the primary: nothing was changed`);
  const from = service.primary;
  await recordAndChange(model, known, service, to, (changed) => {
    change.nodeOf(changed, from).data = 'standby';
  });
  const pauseMs = between([20, 90], model.seed, 'switchover', id, model.clock.nowMs());
  return `${why}; writes paused for ${pauseMs} ms, nothing was lost`;
}

/** Performs a change of the primary as a step of an operation. @returns a line for the user */
export async function changePrimary(
  model: Model,
  known: Primaries,
  spec: ServiceSpec,
  step: PrimaryChange,
): Promise<string> {
  const { id } = spec;
  switch (step.kind) {
    case 'switchover':
      return switchOver(model, known, id, step);
    case 'failover': {
      const successor = await takeOver(model, known, id, change.wantedNodes(spec));
      return 'n' in successor
        ? `member ${successor.n} is the primary: ${successor.detail}`
        : successor.why;
    }
    case 'drill':
      return drill(model, known, spec, step);
  }
}

async function drill(
  model: Model,
  known: Primaries,
  spec: ServiceSpec,
  { to }: PrimaryChange,
): Promise<string> {
  const { state, clock, primaries, seed } = model;
  const { id } = spec;
  // Taken up before it begins: one that is interrupted does not kill another primary.
  if (!(await primaries.takeDrill(id))) throw new Error('drill interrupted; run it again');
  if (spec.ha?.drill === 'switchover') await switchOver(model, known, id, { to, why: 'drill' });
  else {
    await state.change(id, (service) => {
      service.lastFailoverMs = null;
      change.stopServer(service, service.primary, clock.nowMs(), 'killed');
    });
    const successor = await takeOver(model, known, id, change.wantedNodes(spec));
    if ('why' in successor) throw new Error(`nobody took over: ${successor.why}`);
  }
  const probes = between([400, 900], seed, 'probes', id, clock.nowMs());
  const gapMs = between([30, 400], seed, 'gap', id, clock.nowMs());
  return `write gap ${gapMs} ms; 0 of ${probes} acknowledged probes lost`;
}

/**
 * A server died: if it was a primary, another takes over before the reconciler is notified. With a
 * delay or a failure in the script, the reconciler does it.
 */
export async function noticeDeath(model: Model, known: Primaries, id: string): Promise<void> {
  const { state, clock, policy, specs, primaries, changed } = model;
  try {
    await model.inTurn(id, async () => {
      const spec = specs.get(id);
      if (spec === undefined || spec.ha === null || spec.power === 'paused') return;
      await adoptPrimary(model, known, spec);
      const service = state.find(id);
      if (service === null || !service.provisioned || primaryOf(service)?.runs !== false) return;
      const wanted = change.wantedNodes(spec);
      const times = { nowMs: clock.nowMs(), restMs: policy.failoverRestMs };
      if ('why' in successorOf(service, wanted, times)) return;
      const reached = await reachTransition(model, id, STEP.failOver, 'failover');
      if (reached.kind === 'go') await takeOver(model, known, id, wanted);
      else await primaries.begin(id);
    });
  } catch (error) {
    process.emitWarning(
      `service ${id}: its failover did not get on, and is tried again: ${String(error)}`,
    );
  } finally {
    changed(id);
  }
}
