/**
 * Steps that stop and start the primary. Each is one step, so that the primary never counts as dead
 * in between; clients that connect meanwhile wait.
 */
import { ownService } from '../../host/own.ts';
import { assertPlace } from '../../network/networks.ts';
import { NOWHERE } from '../../proxy/gateway.ts';
import { holdPooler, stopPooler } from '../../proxy/pooler.ts';
import { configure } from '../configure.ts';
import { listenerFor } from '../context.ts';
import type { Found } from '../executor.ts';
import { launchGateway, routeGateway, stopGateway, writeGatewayFiles } from '../gateways.ts';
import { observeServer } from '../observe-server.ts';
import { configureReplicated } from '../standbys.ts';
import { startServer, stopIfRunning } from '../start-stop.ts';
import { checkpoint } from './checkpoint.ts';
import { foundAt, portOf, type ClusterRound } from './round.ts';

/** The primary, and its desired replication settings. */
type Primary = { readonly found: Found; readonly conf: string };

/** Stops and starts the primary where it is. @returns a line for the user */
export async function restart(round: ClusterRound, found: Found, why: string): Promise<string> {
  const { topology, spec, ha } = round;
  const { machine, executor, poolers } = topology;
  await checkpoint(found);
  await holdPooler(poolers, machine.layout.service(spec.id));
  await routeGateway(topology, spec.id, NOWHERE);
  await stopIfRunning(executor, found);
  await configure(executor, found);
  await startServer(executor, spec, found);
  await routeGateway(topology, spec.id, portOf(ha, ha.primary));
  return why;
}

/** Moves the primary from the public port to its own, behind a gateway. */
export async function moveToGateway(
  { topology, spec, ha }: ClusterRound,
  { found, conf }: Primary,
): Promise<string> {
  const { executor } = topology;
  await checkpoint(found);
  await writeGatewayFiles(topology, spec);
  await configureReplicated(executor, found, conf);
  await stopIfRunning(executor, found);
  // From here on who connects waits: the gateway is there before the primary is.
  await launchGateway(topology, spec);
  const started = await startServer(executor, spec, found);
  await routeGateway(topology, spec.id, portOf(ha, ha.primary));
  return started;
}

/**
 * Stops the primary and starts it in the desired network, together with the gateway. All sessions
 * end.
 */
export async function move(
  { topology, spec, ha }: ClusterRound,
  { found, conf }: Primary,
  why: string,
): Promise<string> {
  const { machine, executor } = topology;
  await assertPlace(listenerFor(topology, spec), machine.networks);
  await checkpoint(found);
  await stopGateway(topology, spec.id);
  await writeGatewayFiles(topology, spec);
  await stopIfRunning(executor, found);
  await configureReplicated(executor, found, conf);
  await startServer(executor, spec, found);
  await launchGateway(topology, spec);
  await routeGateway(topology, spec.id, portOf(ha, ha.primary));
  return why;
}

/**
 * Ends all of a service, gives it to a user of its own, and starts its primary again as that user;
 * the others follow by their own steps.
 */
export async function changeOwner(
  { topology, spec, ha }: ClusterRound,
  found: ReadonlyMap<number, Found>,
  conf: string,
): Promise<string> {
  const { machine, executor, poolers } = topology;
  const { id } = spec;
  const primary = foundAt(found, ha.primary);
  await checkpoint(primary);
  await stopPooler(poolers, machine.layout.service(id));
  await stopGateway(topology, id);
  // The primary first: as it ends it sends all it has to the others.
  const others = [...found.values()].filter((server) => server !== primary);
  for (const server of [primary, ...others]) await stopIfRunning(executor, server);
  const owned = await ownService(machine, id, null);
  const { found: now } = await observeServer(topology, spec, ha.primary);
  await configureReplicated(executor, now, conf);
  await writeGatewayFiles(topology, spec);
  await startServer(executor, spec, now);
  await launchGateway(topology, spec);
  await routeGateway(topology, id, portOf(ha, ha.primary));
  return owned;
}
