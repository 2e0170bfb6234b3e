/** The directory of a read replica set, and the restart of its nodes. */
import { setTimeout as sleep } from 'node:timers/promises';
import { removeTree } from '../../host/clone.ts';
import { instancePaths } from '../../host/layout.ts';
import type { Machine } from '../../host/machine-record.ts';
import { currentBoot, readMarker, writeMarker } from '../../host/marker.ts';
import { NotYet } from '../../host/not-yet.ts';
import { ownService } from '../../host/own.ts';
import { rename } from '../../host/root-files.ts';
import { ownerOf } from '../../host/users.ts';
import { makeInstanceDirectories } from '../../postgres/server.ts';
import { sessionsOf } from '../../proxy/gateway.ts';
import { holdPooler, stopPooler } from '../../proxy/pooler.ts';
import type { Topology } from '../context.ts';
import type { Found } from '../executor.ts';
import { gatewayPaths, stopGateway } from '../gateways.ts';
import { configureReplicated, startStandby } from '../standbys.ts';
import { startServer, stopIfRunning } from '../start-stop.ts';
import { withhold } from './balance.ts';
import type { SetState } from './set-state.ts';

/**
 * How long sessions may take to end before their node is restarted on purpose: a tenant can keep
 * some open for ever (docs/operating.md).
 */
const DRAIN_MS = 5000;

/** A directory for the nodes of a set, which runs on what its parent runs on. */
export async function makeSet(machine: Machine, id: string, parent: string): Promise<string> {
  const { layout } = machine;
  const marker = await readMarker(layout.service(parent));
  if (marker === null) throw new NotYet('its service is not there yet');
  const unfinished = instancePaths(`${layout.service(id).root}.new`);
  await removeTree(unfinished.root, machine.cloneMethod);
  await makeInstanceDirectories(ownerOf(machine, layout.service(parent)), unfinished);
  const { installation, uid } = marker;
  await writeMarker(unfinished, {
    id,
    installation,
    provisioned: true,
    parent: null,
    madeIn: await currentBoot(),
    uid,
    userOf: parent,
    recovery: null,
    upgrade: null,
    exchange: null,
  });
  await rename(unfinished.root, layout.service(id).root);
  return `for PostgreSQL ${marker.installation}`;
}

/**
 * Ends all of a set and gives it to the user of the service that it follows, without which it
 * cannot follow it.
 */
export async function changeOwnerOfSet(
  topology: Topology,
  { spec: { id, set } }: SetState,
  nodes: Iterable<Found>,
): Promise<string> {
  const { machine, executor, poolers } = topology;
  await stopPooler(poolers, machine.layout.service(id));
  await stopGateway(topology, id);
  for (const node of nodes) await stopIfRunning(executor, node);
  return ownService(machine, id, set?.parent ?? null);
}

/**
 * In order: the node gets no new connections, transactions end, then the node is stopped.
 * Connections to a set of one node wait meanwhile.
 */
export async function restartNode(
  topology: Topology,
  known: SetState,
  n: number,
  found: Found,
  conf: string,
): Promise<string> {
  const { machine, executor, poolers, standbys } = topology;
  const { spec } = known;
  const begun = Date.now();
  try {
    await withhold(topology, known, n);
    await holdPooler(poolers, machine.layout.service(spec.id));
    const left = await drain(topology, spec.id, n);
    await stopIfRunning(executor, found);
    await configureReplicated(executor, found, conf);
    await startStandby(standbys, found.key, () => startServer(executor, spec, found));
    return `in ${Date.now() - begun} ms${left === 0 ? '' : `; ${left} sessions ended with it`}`;
  } finally {
    known.withheld.delete(n);
  }
}

/**
 * Waits until the sessions with a node have ended, or their time is up. @returns how many are left
 */
async function drain(topology: Topology, id: string, n: number): Promise<number> {
  const end = Date.now() + DRAIN_MS;
  for (;;) {
    const sessions = await sessionsOf(gatewayPaths(topology, id), n);
    if (sessions === 0 || Date.now() > end) return sessions;
    await sleep(20);
  }
}
