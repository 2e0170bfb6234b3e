/** Between two rounds: a node that falls behind gets no new connections at once. */
import type { Round, Rounds } from '../../../../lib/rounds.ts';
import type { Topology } from '../context.ts';
import { eligibleNodes } from './judge.ts';
import { measure } from './observe.ts';
import type { SetState } from './set-state.ts';
import { findDaemon } from '../../host/daemon.ts';
import { serveFrom } from '../../proxy/gateway.ts';
import { gatewayPaths } from '../gateways.ts';

export function watchSets(topology: Topology, rounds: Rounds): Round {
  const round = rounds.every('replicaSetLag', () => watchAll(topology));
  round.startLater();
  return round;
}

async function watchAll(topology: Topology): Promise<void> {
  await Promise.all(
    [...topology.sets.values()]
      .filter(({ spec }) => spec.power === 'running')
      .map((known) => watch(topology, known).catch(() => undefined)),
  );
}

async function watch(topology: Topology, known: SetState): Promise<void> {
  const { sets, changed } = topology;
  const { id } = known.spec;
  const primary = await measure(topology, known);
  if (sets.get(id) !== known || known.routed === null) return;
  if (!isSame(known.routed, eligibleNodes(topology, known))) {
    await balance(topology, known).catch(() => undefined); // the next round finds out why
    changed(id);
    return;
  }
  const needsRound = known.set.nodes.some(({ n }) => {
    const node = known.nodes.get(n);
    return (
      node === undefined || node.takesWrites || node.paused || (primary !== null && !node.streaming)
    );
  });
  if (needsRound) changed(id);
}

function isSame(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((n) => b.includes(n));
}

// Which nodes of a read replica set its gateway routes to.

/** Has the gateway route to the nodes that are eligible now. @returns a line for the user */
export async function balance(topology: Topology, known: SetState): Promise<string> {
  const serving = eligibleNodes(topology, known);
  await serveFrom(
    gatewayPaths(topology, known.spec.id),
    known.set.nodes.map(({ n }) => n),
    serving,
  );
  known.routed = serving;
  return serving.length === 0
    ? 'to no node: who connects waits'
    : `to ${serving.length === 1 ? 'node' : 'nodes'} ${serving.join(', ')}`;
}

/** From here on a node gets no new connections, until it is removed from `withheld`. */
export async function withhold(topology: Topology, known: SetState, n: number): Promise<void> {
  known.withheld.add(n);
  const gateway = await findDaemon(gatewayPaths(topology, known.spec.id));
  if (gateway?.frozen === false) await balance(topology, known);
}
