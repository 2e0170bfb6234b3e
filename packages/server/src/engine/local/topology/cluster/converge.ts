/** One round of a service with replicas. */
import type { BeginStep, Verdict } from '../../../engine.ts';
import type { Topology } from '../context.ts';
import { decideHa, haStepName, type HaStep } from '../decide-ha.ts';
import { endingOf, finishRound, type Decided } from '../driver.ts';
import { tidyReplicated } from '../standbys.ts';
import { applyToCluster } from './apply.ts';
import { clusterOf, inTurn } from './cluster.ts';
import { observeCluster } from './observe.ts';
import { withRecordedPrimary } from './primary.ts';
import type { PlacedCluster, PlacedSpec } from '../placed-spec.ts';

/** Observes a cluster, decides, and performs one step. */
export async function convergeCluster(
  topology: Topology,
  spec: PlacedSpec,
  ha: PlacedCluster,
  begin: BeginStep,
): Promise<Verdict> {
  const { machine } = topology;
  const cluster = clusterOf(topology, spec.id);
  await cluster.failingOver?.catch(() => undefined);
  const desired = { topology, cluster, spec, ha };
  const round = await inTurn(cluster, () => withRecordedPrimary(desired));
  // It was recorded after these servers were chosen: the next round chooses again.
  if (!ha.servers.some(({ n }) => n === round.ha.primary)) return ANOTHER_PRIMARY;
  cluster.spec = spec;
  const observed = await observeCluster(round);
  const step = decideHa(spec, round.ha, observed.seen);
  const { isWritable } = observed;
  const { directory, provisioned } = observed.seen.primary;
  return finishRound(
    {
      before: { reachable: isWritable, present: directory === 'ours', provisioned },
      decided: decidedOf(step, isWritable),
      tidy: () => tidyReplicated(machine, spec.id, observed.found),
      apply: (show) => applyToCluster(round, step, observed, show),
      isReachableAfter: () => isWritable,
    },
    begin,
  );
}

const ANOTHER_PRIMARY: Verdict = {
  did: null,
  detail: null,
  seen: { reachable: true, present: true, provisioned: true },
  outcome: 'again',
  waitMs: 20,
};

function decidedOf(step: HaStep, isWritable: boolean): Decided {
  const ending = step.kind === 'server' ? endingOf(step.step) : null;
  if (ending === null) return { name: haStepName(step) ?? step.kind };
  if (ending.kind !== 'wait' || isWritable) return { ending };
  return { ending: { ...ending, why: `writes wait: ${ending.why}` } };
}
