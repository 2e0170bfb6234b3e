/**
 * Changes of the primary of a model service: failover, switchover and drill. The control plane
 * records the new primary before it is one here.
 */
import type { OperationStep } from '@howdah/contract';
import type { ServiceSpec } from '../spec.ts';
import * as change from './server-changes.ts';
import { successorOf, type Successor } from './decide-ha.ts';
import { reachTransition, type Model } from './model.ts';
import { type PrimaryChange, STEP } from './steps.ts';
import { between } from './random.ts';
import { primaryOf, streamingOf, type ModelService } from './state.ts';

/**
 * Makes the recorded primary the one of the service. In turn only: no failover happens until the
 * round has ended.
 *
 * @returns the spec, without a switchover that a failover has satisfied since it was read
 */
export async function adoptPrimary(
  { state, records }: Model,
  spec: ServiceSpec,
): Promise<ServiceSpec> {
  const { id, ha } = spec;
  if (ha === null) return spec;
  const record = await records.read(id);
  if (record === null) throw gone(id);
  if ((state.find(id)?.primary ?? 0) !== record.primary)
    await setPrimary(state, id, record.primary);
  return { ...spec, ha: { ...ha, switchover: ha.switchover && record.switchover } };
}

const gone = (id: string): Error =>
  new Error(`service ${id} is not in the metadata database any more`);

const setPrimary = (state: Model['state'], id: string, n: number): Promise<void> =>
  state.change(id, (service) => {
    service.primary = n;
  });

/** Records another primary, then makes it one. @throws Error when another one is recorded */
async function recordAndChange(
  { state, clock, records }: Model,
  { id, primary: from }: Pick<ModelService, 'id' | 'primary'>,
  to: number,
  alsoChange: (service: ModelService, nowMs: number) => void,
): Promise<void> {
  const recorded = await records.recordPrimary(id, from, to);
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
async function takeOver(model: Model, spec: ServiceSpec): Promise<Successor> {
  const { state, clock, records, policy, realMs } = model;
  const { id } = spec;
  const service = state.find(id);
  if (service === null || primaryOf(service)?.runs === true)
    return { why: `member ${service?.primary ?? 0} runs` };
  const from = service.primary;
  await records.begin(id);
  const steps: OperationStep[] = [];
  const note = (name: string, startedMs: number, detail: string): void => {
    const [started, finished] = [startedMs, realMs()].map((ms) => new Date(ms).toISOString());
    steps.push({ name, started: started ?? '', finished: finished ?? null, outcome: 'ok', detail });
  };
  note('fence', realMs(), `nothing of member ${from} is left`);
  const times = { nowMs: clock.nowMs(), cooldownMs: policy.failoverCooldownMs };
  const successor = successorOf(service, change.wantedNodes(spec, service), times);
  if ('why' in successor) {
    await records.end(id, steps, successor.why);
    return successor;
  }
  const startedMs = realMs();
  await recordAndChange(model, service, successor.n, (changed, nowMs) => {
    changed.lastFailoverMs = nowMs;
  });
  note(STEP.recordedPrimary, startedMs, `member ${successor.n}: ${successor.detail}`);
  await records.end(id, steps, null);
  return successor;
}

/** In order: the primary stops and follows the new one. In turn only. */
async function switchOver(
  model: Model,
  id: string,
  { to, why }: Pick<PrimaryChange, 'to' | 'why'>,
): Promise<string> {
  const service = model.state.find(id);
  if (service === null || !streamingOf(service).some(({ n }) => n === to))
    throw new Error(`member ${to} does not follow the primary: nothing was changed`);
  const from = service.primary;
  await recordAndChange(model, service, to, (changed) => {
    change.nodeOf(changed, from).data = 'standby';
  });
  const pauseMs = between([20, 90], model.seed, 'switchover', id, model.clock.nowMs());
  return `${why}; writes paused for ${pauseMs} ms, nothing was lost`;
}

/** Performs a change of the primary as a step of an operation. @returns a line for the user */
export async function changePrimary(
  model: Model,
  spec: ServiceSpec,
  step: PrimaryChange,
): Promise<string> {
  const { id } = spec;
  switch (step.kind) {
    case 'switchover':
      return switchOver(model, id, step);
    case 'failover': {
      const successor = await takeOver(model, spec);
      return 'n' in successor
        ? `member ${successor.n} is the primary: ${successor.detail}`
        : successor.why;
    }
    case 'drill':
      return drill(model, spec, step);
  }
}

async function drill(model: Model, spec: ServiceSpec, { to }: PrimaryChange): Promise<string> {
  const { state, clock, records, seed } = model;
  const { id } = spec;
  // Taken up before it begins: one that is interrupted does not kill another primary.
  if (!(await records.takeDrill(id))) throw new Error('drill interrupted; run it again');
  if (spec.ha?.drill === 'switchover') await switchOver(model, id, { to, why: 'drill' });
  else {
    await state.change(id, (service) => {
      service.lastFailoverMs = null;
      change.stopServer(service, service.primary, clock.nowMs(), 'killed');
    });
    const successor = await takeOver(model, spec);
    if ('why' in successor) throw new Error(`no standby took over: ${successor.why}`);
  }
  const probes = between([400, 900], seed, 'probes', id, clock.nowMs());
  const gapMs = between([30, 400], seed, 'gap', id, clock.nowMs());
  return `write gap ${gapMs} ms; 0 of ${probes} acknowledged probes lost`;
}

/**
 * A server died: if it was a primary, another takes over before the reconciler is notified. With a
 * delay or a failure in the script, the reconciler does it.
 */
export async function noticeDeath(model: Model, id: string): Promise<void> {
  const { state, clock, policy, specs, records, changed } = model;
  try {
    await model.inTurn(id, async () => {
      const spec = specs.get(id);
      if (spec === undefined || spec.ha === null || spec.power === 'paused') return;
      await adoptPrimary(model, spec);
      const service = state.find(id);
      if (service === null || !service.provisioned || primaryOf(service)?.runs !== false) return;
      const wanted = change.wantedNodes(spec, service);
      const times = { nowMs: clock.nowMs(), cooldownMs: policy.failoverCooldownMs };
      if ('why' in successorOf(service, wanted, times)) return;
      const reached = await reachTransition(model, id, STEP.failOver, 'failover');
      if (reached.kind === 'go') await takeOver(model, spec);
      else await records.begin(id);
    });
  } catch (error) {
    process.emitWarning(
      `service ${id}: its failover did not get on, and is tried again: ${String(error)}`,
    );
  } finally {
    changed(id);
  }
}
