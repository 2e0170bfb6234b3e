/** Observes all nodes of a read replica set, its gateway and its pooler. */
import { existsSync } from 'node:fs';
import type { ReplicaState, Warning } from '@howdah/contract';
import { readMarker } from '../../host/marker.ts';
import { isOwned } from '../../host/ownership.ts';
import {
  floorsOf,
  nodeName,
  replicationConf,
  WAITS_FOR_NOBODY,
} from '../../../postgres/replication/replication-conf.ts';
import { observeNodes } from '../../proxy/gateway.ts';
import { observePooler, type PoolerPlan } from '../../proxy/pooler.ts';
import { listenerFor, type Topology } from '../context.ts';
import type { NodeSeen, SetSeen } from '../../../postgres/decisions/decide-set.ts';
import type { Found } from '../executor.ts';
import { gatewayPaths, watchGateway } from '../gateways.ts';
import { observeServer, type ObservedServer } from '../observe-server.ts';
import { planPooler } from '../pooler-plan.ts';
import { brokenOf, confOf, noteOnDisk, ownPartOf } from '../standbys.ts';
import { judge } from './judge.ts';
import type { Primary, SetState } from './set-state.ts';
import { lagOf, remember } from '../../../postgres/replication/lag.ts';
import { memberKey } from '../../host/layout.ts';
import { findServer } from '../../postgres/server.ts';
import { parseLsn } from '../../../postgres/data/wal.ts';
import { askReplay, askUpstream } from '../../../postgres/replication/replication-state.ts';

export type SetObserved = {
  readonly found: ReadonlyMap<number, Found>;
  /** The desired replication settings of each node. */
  readonly conf: ReadonlyMap<number, string>;
  readonly primary: Primary | null;
  readonly pooler: PoolerPlan | null;
  readonly seen: SetSeen;
  /** Whether its endpoint routes to any node. */
  readonly isReachable: boolean;
};

type Numbered = ObservedServer & { readonly n: number };
type Gateway = Awaited<ReturnType<typeof observeNodes>>;

export async function observeSet(topology: Topology, known: SetState): Promise<SetObserved> {
  const { machine, poolers } = topology;
  const { spec, set } = known;
  const root = machine.layout.service(spec.id);
  const [marker, servers, primary, gateway] = await Promise.all([
    readMarker(root),
    Promise.all(
      set.nodes.map(async ({ n }) => ({ n, ...(await observeServer(topology, spec, n)) })),
    ),
    measure(topology, known),
    observeNodes(gatewayPaths(topology, spec.id), listenerFor(topology, spec)),
  ]);
  if (gateway.running) await watchGateway(topology, spec.id);
  noteRoutes(known, servers, gateway);
  const conf = new Map<number, string>();
  const nodes = await Promise.all(
    servers.map((server) => observeNode(topology, known, server, { conf, primary, gateway })),
  );
  const pooler = await poolerOf(topology, known, servers[0]?.found);
  return {
    found: new Map(servers.map(({ n, found }) => [n, found])),
    conf,
    primary,
    pooler,
    seen: {
      directory: marker?.id === spec.id ? 'ours' : existsSync(root.root) ? 'foreign' : 'absent',
      nodes,
      gateway,
      primaryReady: primary !== null,
      slotsCurrent:
        primary === null ||
        set.nodes.every(({ n }) => primary.slots.includes(nodeName(spec.id, n))),
      pooler: await observePooler(poolers, root, pooler, listenerFor(topology, spec)),
      owned: marker?.id !== spec.id || (await isOwned(machine, spec, marker)),
    },
    isReachable: gateway.running && nodes.some(({ serving, eligible }) => serving && eligible),
  };
}

/** Notes what `judge` has to know of this round. */
function noteRoutes(known: SetState, servers: readonly Numbered[], { serving }: Gateway): void {
  known.routed = serving;
  known.elsewhere = new Set(
    servers.filter(({ seen }) => seen.server?.placed === false).map(({ n }) => n),
  );
  known.unasked = new Set(
    servers
      .filter(({ n, seen, found: { server } }) => {
        const answers = seen.server?.phase === 'ready' && server?.postmaster.frozen === false;
        return answers && serving?.includes(n) === true && !known.asked.has(n);
      })
      .map(({ n }) => n),
  );
}

type View = {
  /** Filled with the settings of each node. */
  readonly conf: Map<number, string>;
  readonly primary: Primary | null;
  readonly gateway: Gateway;
};

async function observeNode(
  topology: Topology,
  known: SetState,
  observed: Numbered,
  { conf, primary, gateway }: View,
): Promise<NodeSeen> {
  const { standbys } = topology;
  const { spec } = known;
  const { n, found, seen } = observed;
  const { paths, files } = found;
  await noteOnDisk(standbys, found);
  const name = nodeName(spec.id, n);
  const before = await confOf(paths);
  const desired =
    primary === null
      ? before
      : replicationConf(name, primary, WAITS_FOR_NOBODY, {
          limits: floorsOf(primary.floors, files?.['postgresql.conf'] ?? ''),
        });
  conf.set(n, desired);
  const node = known.nodes.get(n);
  const own = ownPartOf(observed, spec);
  const isExpected = primary !== null && seen.server?.phase === 'ready' && seen.connected;
  return {
    n,
    ...own,
    // Replay pauses where the node's settings leave no room for what the primary allows.
    server:
      own.server !== null && node?.paused === true
        ? { ...own.server, size: 'smaller' }
        : own.server,
    filesCurrent: seen.filesCurrent && before === desired,
    streaming: node?.streaming === true,
    broken: await brokenOf(
      standbys,
      found,
      !isExpected || primary.receiving.includes(name),
      primary?.lost.includes(name) === true,
    ),
    takesWrites: node?.takesWrites === true,
    serving: gateway.serving?.includes(n) === true,
    eligible: judge(topology, known, n).eligible,
  };
}

/**
 * The pooler comes to the nodes by the gateway, through a Unix socket; it shows its clients the
 * certificate of the first node.
 */
async function poolerOf(
  topology: Topology,
  { spec }: SetState,
  first: Found | undefined,
): Promise<PoolerPlan | null> {
  if (first === undefined || spec.pooler === null) return null;
  const { listener, installation } = first;
  const paths = { ...first.paths, socket: gatewayPaths(topology, spec.id).root };
  const { port } = spec.endpoint;
  return planPooler(topology.poolers, spec, {
    paths,
    key: first.key,
    port,
    listener,
    installation,
  });
}

// Measures how far the nodes of a read replica set are behind their primary.

/** The primary of a service; null: there is none, or it does not answer. */
export async function findPrimary(
  { machine: { layout }, monitor }: Topology,
  parent: string,
): Promise<Primary | null> {
  const n = layout.primaryOf(parent);
  const [key, paths] = [memberKey(parent, n), layout.member(parent, n)];
  if (!monitor.isConnected(key) || monitor.silentMs(key) !== null) return null;
  const port = (await findServer(paths))?.port ?? null;
  if (port === null) return null;
  const state = await askUpstream(monitor, key);
  return state === null ? null : { key, paths, port, ...state, flushed: parseLsn(state.end) };
}

/**
 * Measures how far nodes are behind. While the primary cannot be asked they are as far behind as
 * they were: nothing is written.
 */
export function measure(topology: Topology, known: SetState): Promise<Primary | null> {
  known.measuring ??= measureNow(topology, known).finally(() => {
    known.measuring = null;
  });
  return known.measuring;
}

async function measureNow(topology: Topology, known: SetState): Promise<Primary | null> {
  const primary = await findPrimary(topology, known.set.parent);
  if (primary !== null)
    known.positions = remember(known.positions, {
      atMs: performance.now(),
      lsn: primary.flushed,
    });
  await Promise.all(known.set.nodes.map(({ n }) => measureNode(topology, known, n, primary)));
  return primary;
}

async function measureNode(
  { monitor }: Topology,
  known: SetState,
  n: number,
  primary: Primary | null,
): Promise<void> {
  const { id } = known.spec;
  const before = known.nodes.get(n);
  const answer = await askReplay(monitor, memberKey(id, n));
  if (answer === null) {
    known.nodes.delete(n);
    return;
  }
  known.asked.add(n);
  const streaming = primary?.streaming.includes(nodeName(id, n)) === true;
  const lsn = parseLsn(answer.replayed ?? '0/0');
  const streamedMs = streaming ? (known.positions.at(-1)?.atMs ?? 0) : (before?.streamedMs ?? 0);
  known.nodes.set(n, {
    takesWrites: !answer.recovering,
    paused: answer.paused,
    streaming,
    streamedMs,
    ahead: primary !== null && !streaming && lsn > primary.flushed,
    lag:
      primary === null
        ? (before?.lag ?? null)
        : lagOf(known.positions, { lsn, streaming, streamedMs }),
  });
}

// The state of the nodes of read replica sets, as users see it.

/** The state of the nodes of a set; null: it is not a set, or was not observed yet. */
export function nodeStates(topology: Topology, id: string): ReplicaState[] | null {
  const known = topology.sets.get(id);
  if (known === undefined) return null;
  return known.set.nodes.map(({ n }) => {
    const lag = known.nodes.get(n)?.lag ?? null;
    const { detail } = judge(topology, known, n);
    return {
      node: n,
      serving: known.routed?.includes(n) === true,
      lag_bytes: lag?.bytes ?? null,
      lag_seconds: lag?.seconds ?? null,
      detail,
    };
  });
}

/** The read replica sets of a service that were observed. */
export function setsOf({ sets }: Topology, parent: string): string[] {
  return [...sets.values()].filter(({ set }) => set.parent === parent).map(({ spec }) => spec.id);
}

/** The problems of the read replica sets of a service. */
export function setWarnings(topology: Topology, parent: string): Warning[] {
  const missing = [...topology.sets.values()]
    .filter(({ spec, set }) => set.parent === parent && spec.power === 'running')
    .flatMap((known) =>
      known.set.nodes.flatMap(({ n }) => {
        const { eligible, detail } = judge(topology, known, n);
        return eligible ? [] : [`node ${n} of read replica set ${known.spec.id}: ${detail}`];
      }),
    );
  if (missing.length === 0) return [];
  const message = `no new connection is routed to ${missing.join('; ')}`;
  return [{ code: 'REPLICA_MISSING', message }];
}
