/** One round of a read replica set. */
import type { BeginStep, Verdict } from '../../../engine.ts';
import type { Topology } from '../context.ts';
import { decideSet, setStepName, type SetStep } from '../decide-set.ts';
import { endingOf, finishRound, type Decided } from '../driver.ts';
import { gatewayPaths } from '../gateways.ts';
import { tidyReplicated } from '../standbys.ts';
import { applyToSet } from './apply.ts';
import { observeSet } from './observe.ts';
import { setStateOf } from './set-state.ts';
import type { PlacedSet, PlacedSpec } from '../placed-spec.ts';

/** Observes a read replica set, decides, and performs one step. */
export async function convergeSet(
  topology: Topology,
  spec: PlacedSpec,
  set: PlacedSet,
  begin: BeginStep,
): Promise<Verdict> {
  const { machine } = topology;
  const known = setStateOf(topology, spec, set);
  const observed = await observeSet(topology, known);
  const step = decideSet(spec, observed.seen);
  const { isReachable } = observed;
  return finishRound(
    {
      before: {
        reachable: isReachable,
        present: observed.seen.directory === 'ours',
        // It has no data of its own: its nodes are made again from its service.
        provisioned: false,
      },
      decided: decidedOf(step),
      tidy: () => tidyReplicated(machine, spec.id, observed.found),
      apply: () => applyToSet(topology, known, step, observed),
      isReachableAfter: () => isReachable,
    },
    begin,
  );
}

function decidedOf(step: SetStep): Decided {
  const ending = step.kind === 'server' || step.kind === 'pooler' ? endingOf(step.step) : null;
  return ending === null ? { name: setStepName(step) ?? step.kind } : { ending };
}

/** Forgets a set that is being removed. */
export function forgetSet(topology: Topology, id: string): void {
  if (topology.sets.delete(id)) topology.gateways.forget(gatewayPaths(topology, id));
}
