/** One round of a service with one server. */
import type { BeginStep, ShowProgress, Verdict } from '../../engine.ts';
import { removeTree } from '../host/clone.ts';
import { capLog } from '../host/daemon.ts';
import { instancePaths } from '../host/layout.ts';
import { pruneLogs } from '../../postgres/logs.ts';
import { applyStep } from './apply.ts';
import type { Topology } from './context.ts';
import {
  decide,
  STEP_NAME,
  type Observation,
  type Step,
  isEnding,
} from '../../postgres/decisions/decide.ts';
import { finishRound } from './driver.ts';
import type { Found } from './executor.ts';
import { observeServer, type ObservedServer } from './observe-server.ts';
import type { PlacedSpec } from '../../postgres/decisions/placed-spec.ts';

/**
 * When to check for sessions that logged in while the rules changed; a login takes a minute at
 * most.
 */
const RECHECK_SESSIONS_MS = [1000, 10_000, 61_000];

/** Observes a single server, decides, and performs one step. */
export async function convergeSingle(
  topology: Topology,
  spec: PlacedSpec,
  begin: BeginStep,
): Promise<Verdict> {
  const { monitor } = topology;
  const observed = await observeServer(topology, spec);
  const { found, seen } = observed;
  // Not having connected yet, after a start of the control plane, is no fault of the service's.
  const asleep = isAsleep(spec, seen);
  const reachable =
    asleep ||
    seen.relay?.state === 'waking' ||
    (seen.server?.phase === 'ready' && seen.silentMs === null);
  const step = decide(spec, seen);
  return finishRound(
    {
      before: {
        reachable,
        present: seen.directory === 'ours',
        provisioned: seen.provisioned,
        asleep,
      },
      decided: isEnding(step) ? { ending: step } : { name: STEP_NAME[step.kind] },
      tidy: () => tidy(topology, observed),
      apply: (show) => apply(topology, spec, step, found, show),
      isReachableAfter: (worked) => worked && (asleep || monitor.isConnected(spec.id)),
    },
    begin,
  );
}

/** Whether the first client has its server started; an activator that is gone comes back. */
function isAsleep({ sleep }: PlacedSpec, { server, relay }: Observation): boolean {
  if (server !== null) return false;
  return relay === null ? sleep?.isAsleep === true && sleep.mayStay : relay.state === 'asleep';
}

async function tidy({ machine }: Topology, { found, seen }: ObservedServer): Promise<void> {
  const { root, logs, pooler } = found.paths;
  if (seen.directory === 'ours') await Promise.all([pruneLogs(logs), capLog(pooler)]);
  // The service was being made when it was deleted.
  else await removeTree(instancePaths(`${root}.new`).root, machine.cloneMethod);
}

async function apply(
  topology: Topology,
  spec: PlacedSpec,
  step: Step,
  found: Found,
  show: ShowProgress,
): Promise<string> {
  if (isEnding(step)) return '';
  const detail = await applyStep(topology.executor, spec, step, found, show);
  if (step.kind === 'reload' && found.listener.allowedNetworks !== null)
    recheckSessionsLater(topology, spec.id);
  return detail;
}

/**
 * A client that was about to log in when the rules changed gets in by the old ones, up to the
 * server's authentication_timeout later.
 */
function recheckSessionsLater({ changed }: Topology, id: string): void {
  for (const ms of RECHECK_SESSIONS_MS) setTimeout(() => changed(id), ms).unref();
}
