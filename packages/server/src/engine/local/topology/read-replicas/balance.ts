/** Which nodes of a read replica set its gateway routes to. */
import { findDaemon } from '../../host/daemon.ts';
import { serveFrom } from '../../proxy/gateway.ts';
import type { Topology } from '../context.ts';
import { gatewayPaths } from '../gateways.ts';
import { eligibleNodes } from './judge.ts';
import type { SetState } from './set-state.ts';

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
