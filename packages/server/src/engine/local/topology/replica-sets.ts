/** Read replica sets: observes all nodes of a set, and performs the steps that {@link decideSet} chooses. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ReplicaState, Warning } from '@howdah/contract';
import type { ReadLagLimit } from '../../../config.ts';
import type { BeginStep, Seen, Verdict } from '../../engine.ts';
import type { ReplicaSet, ServiceSpec } from '../../spec.ts';
import { applyStep, startPooler, planOrThrow } from './apply.ts';
import type { Executor, Found } from './executor.ts';
import { startServer, stopIfRunning } from './start-stop.ts';
import { NotYet } from '../host/not-yet.ts';
import { removeTree } from '../host/clone.ts';
import { capLog, createDaemonWatch, findDaemon } from '../host/daemon.ts';
import type { Observation } from './decide.ts';
import type { Listener } from '../network/listener.ts';
import { decideSet, setStepName, type NodeSeen, type SetSeen, type SetStep } from './decide-set.ts';
import {
  applyAllowedNetworks,
  closeGateway,
  observeNodes,
  openGateway,
  prepareGateway,
  serveFrom,
  sessionsOf,
  setGatewayConfig,
} from '../proxy/gateway.ts';
import { isWithin, lagOf, remember, type NodeKnown, type Position } from './lag.ts';
import { instancePaths, memberKey, type InstancePaths } from '../host/layout.ts';
import { pruneLogs } from '../postgres/logs.ts';
import type { Machine } from '../host/machine-record.ts';
import { currentBoot, readMarker, writeMarker } from '../host/marker.ts';
import type { Monitor } from '../postgres/monitor.ts';
import { assertPlace } from '../network/networks.ts';
import {
  observePooler,
  reloadPooler,
  holdPooler,
  stopPooler,
  type PoolerPlan,
  type Poolers,
} from '../proxy/pooler.ts';
import { noneOf } from '../../../lib/processes.ts';
import {
  FLOORS,
  floorsOf,
  nodeName,
  replicationConf,
  WAITS_FOR_NOBODY,
} from '../postgres/replication.ts';
import { rename } from '../host/root-files.ts';
import { fence, findServer, makeInstanceDirectories } from '../postgres/server.ts';
import { listEntries, removeEntry } from '../host/service-files.ts';
import {
  compareSizes,
  confOf,
  createStandbys,
  dataOf,
  RECEIVING,
  brokenOf,
  configureReplicated,
  createSlots,
  dropSlots,
  noteOnDisk,
  seedStandby,
  startStandby,
  writeReplication,
} from './standbys.ts';
import { gatewayOwnerOf, ownerOf } from '../host/users.ts';
import { isOwned, ownService } from '../host/own.ts';
import { parseLsn } from '../postgres/wal.ts';

export type ReplicaSetsOptions = {
  machine: Machine;
  executor: Executor;
  monitor: Monitor;
  poolers: Poolers;
  /** Observes one node as a single server. */
  look: (spec: ServiceSpec, n: number) => Promise<{ look: Found; seen: Observation }>;
  /** The desired pooler of a set, in front of a server with these paths and port. */
  planPooler: (
    spec: ServiceSpec,
    server: InstancePaths,
    port: number,
    found: Found,
  ) => Promise<PoolerPlan | null>;
  listenerFor: (spec: Pick<ServiceSpec, 'vpc'>) => Listener;
  readLagLimit: ReadLagLimit;
  changed: (id: string) => void;
};

/** How often it is measured how far nodes are behind. */
const MEASURE_MS = 1000;
/** How long sessions may take to end before their node is restarted on purpose. */
const DRAIN_MS = 5000;
/** How long the start of a pooler waits for its role to be replayed by the nodes. */
const REPLAY_MS = 10_000;

/** The state of a set that is kept between two rounds. */
type Known = {
  spec: ServiceSpec;
  set: ReplicaSet;
  positions: Position[];
  /** By the number of a node. */
  nodes: Map<number, NodeKnown>;
  /** Nodes that get no connections, since they are about to be restarted. */
  withheld: Set<number>;
  /** Nodes that run where the gateway does not get to: about to be moved. */
  elsewhere: ReadonlySet<number>;
  /** The nodes that the gateway routes to, as last configured; null: unknown. */
  told: readonly number[] | null;
  /** Nodes that this control plane has asked, or has tried to. */
  asked: Set<number>;
  /** Nodes that run and are routed to, and that were not asked since the control plane started. */
  unasked: ReadonlySet<number>;
  measuring: Promise<Primary | null> | null;
};

/** A primary that accepts writes and answers. */
type Primary = {
  key: string;
  paths: InstancePaths;
  port: number;
  streaming: readonly string[];
  /** Standbys that stream, or are still catching up. */
  receiving: readonly string[];
  slots: readonly string[];
  lost: readonly string[];
  floors: Readonly<Record<string, number>>;
};

export function createReplicaSets({
  machine,
  executor,
  monitor,
  poolers,
  look,
  planPooler,
  listenerFor,
  readLagLimit,
  changed,
}: ReplicaSetsOptions) {
  const { layout } = machine;
  const daemons = createDaemonWatch(changed);
  const standbys = createStandbys(executor);
  const sets = new Map<string, Known>();

  const knownOf = (spec: ServiceSpec, set: ReplicaSet): Known => {
    const known = sets.get(spec.id) ?? {
      spec,
      set,
      positions: [],
      nodes: new Map<number, NodeKnown>(),
      withheld: new Set<number>(),
      elsewhere: new Set<number>(),
      told: null,
      asked: new Set<number>(),
      unasked: new Set<number>(),
      measuring: null,
    };
    known.spec = spec;
    known.set = set;
    sets.set(spec.id, known);
    return known;
  };

  // ── measure ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** The primary of a service; null: there is none, or it does not answer. */
  const askPrimary = async (parent: string): Promise<(Primary & { flushed: bigint }) | null> => {
    const n = layout.primaryOf(parent);
    const [key, paths] = [memberKey(parent, n), layout.member(parent, n)];
    if (!monitor.isConnected(key) || monitor.silentMs(key) !== null) return null;
    const port = (await findServer(paths))?.port ?? null;
    if (port === null) return null;
    try {
      const [row] = await monitor.query<{
        flushed: string | null;
        streaming: string[];
        receiving: string[];
        slots: string[];
        lost: string[];
        floors: Record<string, number>;
      }>(
        key,
        `select case when not pg_is_in_recovery() then pg_current_wal_flush_lsn()::text end as flushed,
                array(select application_name from pg_stat_replication where state = 'streaming') as streaming,
                ${RECEIVING} as receiving,
                array(select slot_name::text from pg_replication_slots where slot_type = 'physical') as slots,
                array(select slot_name::text from pg_replication_slots where slot_type = 'physical' and wal_status = 'lost') as lost,
                (select jsonb_object_agg(name, setting::int) from pg_settings where name = any ($1::text[])) as floors`,
        [FLOORS],
      );
      return row === undefined || row.flushed === null
        ? null
        : { key, paths, port, ...row, flushed: parseLsn(row.flushed) };
    } catch {
      return null; // it is dying
    }
  };

  const askNode = async (
    key: string,
  ): Promise<{ recovering: boolean; replayed: string | null; paused: boolean } | null> => {
    if (!monitor.isConnected(key) || monitor.silentMs(key) !== null) return null;
    const [row] = await monitor
      .query<{ recovering: boolean; replayed: string | null; paused: boolean }>(
        key,
        `select pg_is_in_recovery() as recovering, pg_last_wal_replay_lsn()::text as replayed,
                case when pg_is_in_recovery() then pg_get_wal_replay_pause_state() <> 'not paused' else false end as paused`,
      )
      .catch(() => []);
    return row ?? null;
  };

  /** Measures how far nodes are behind. While the primary cannot be asked they are as far behind as they were: nothing is written. */
  const measure = (known: Known): Promise<Primary | null> => {
    known.measuring ??= measureNow(known).finally(() => {
      known.measuring = null;
    });
    return known.measuring;
  };

  const measureNow = async (known: Known): Promise<Primary | null> => {
    const { id } = known.spec;
    const primary = await askPrimary(known.set.parent);
    if (primary !== null)
      known.positions = remember(known.positions, {
        atMs: performance.now(),
        lsn: primary.flushed,
      });
    await Promise.all(
      known.set.nodes.map(async ({ n }) => {
        const before = known.nodes.get(n);
        const answer = await askNode(memberKey(id, n));
        if (answer === null) {
          known.nodes.delete(n);
          return;
        }
        known.asked.add(n);
        const streaming = primary?.streaming.includes(nodeName(id, n)) === true;
        const lsn = parseLsn(answer.replayed ?? '0/0');
        const streamedMs = streaming
          ? (known.positions.at(-1)?.atMs ?? 0)
          : (before?.streamedMs ?? 0);
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
      }),
    );
    return primary;
  };

  /** Whether the gateway must route to a node, or why not. */
  const judge = (
    { spec, nodes, withheld, elsewhere, unasked }: Known,
    n: number,
  ): { eligible: boolean; detail: string } => {
    const key = memberKey(spec.id, n);
    const node = nodes.get(n);
    const no = (detail: string) => ({ eligible: false, detail });
    if (dataOf(layout.member(spec.id, n)) === 'absent') return no('being made from the primary');
    if (monitor.silentMs(key) !== null) return no('does not answer');
    // A restart of the control plane must not interrupt reads: it stays until it is asked.
    if (unasked.has(n) && !withheld.has(n) && !elsewhere.has(n))
      return { eligible: true, detail: 'accepts connections; its lag has not been measured yet' };
    if (!monitor.isConnected(key) || node === undefined) return no('does not run yet');
    if (node.takesWrites) return no('accepts writes: it is ended and recreated');
    if (withheld.has(n)) return no('about to be restarted');
    if (elsewhere.has(n)) return no('about to be moved to where its service is');
    if (node.ahead) return no('has log that the primary has not');
    if (node.lag !== null && !isWithin(node.lag, readLagLimit)) {
      const { bytes, seconds } = readLagLimit;
      return no(
        `too far behind: the limit is ${bytes} bytes and ${seconds} s (HOWDAH_READ_LAG_BYTES, HOWDAH_READ_LAG_SECONDS)`,
      );
    }
    return {
      eligible: true,
      detail: node.streaming ? 'follows the primary' : 'serves, and waits for the primary',
    };
  };

  const eligibleOf = (known: Known): number[] =>
    known.set.nodes.filter(({ n }) => judge(known, n).eligible).map(({ n }) => n);

  /** Has the gateway route to the nodes that are eligible at this moment. */
  const balance = async (known: Known): Promise<string> => {
    const serving = eligibleOf(known);
    await serveFrom(
      layout.gateway(known.spec.id),
      known.set.nodes.map(({ n }) => n),
      serving,
    );
    known.told = serving;
    return serving.length === 0
      ? 'to no node: who connects waits'
      : `to ${serving.length === 1 ? 'node' : 'nodes'} ${serving.join(', ')}`;
  };

  /** Between two rounds: a node that falls behind gets no new connections at once. */
  const watch = async (known: Known): Promise<void> => {
    const { id } = known.spec;
    const primary = await measure(known);
    if (sets.get(id) !== known || known.told === null) return;
    if (!sameNumbers(known.told, eligibleOf(known))) {
      await balance(known).catch(() => undefined); // the next round finds out why
      changed(id);
      return;
    }
    const states = known.set.nodes.map(({ n }) => known.nodes.get(n));
    if (
      states.some(
        (node) =>
          node === undefined ||
          node.takesWrites ||
          node.paused ||
          (primary !== null && !node.streaming),
      )
    )
      changed(id);
  };

  const watchAll = async (): Promise<void> => {
    await Promise.all(
      [...sets.values()]
        .filter(({ spec }) => spec.power === 'running')
        .map((known) => watch(known).catch(() => undefined)),
    );
  };
  const timer = setInterval(() => void watchAll(), MEASURE_MS).unref();

  // ── observe ────────────────────────────────────────────────────────────────────────────────────────────────────

  type Seeing = {
    found: Map<number, Found>;
    conf: Map<number, string>;
    primary: Primary | null;
    pooler: PoolerPlan | null;
    seen: SetSeen;
    /** Whether its endpoint routes to any node. */
    reachable: boolean;
  };

  const observe = async (known: Known): Promise<Seeing> => {
    const { spec, set } = known;
    const root = layout.service(spec.id);
    const gateway = layout.gateway(spec.id);
    const [marker, looks, primary, seenGateway] = await Promise.all([
      readMarker(root),
      Promise.all(set.nodes.map(async ({ n }) => ({ n, ...(await look(spec, n)) }))),
      measure(known),
      observeNodes(gateway, listenerFor(spec)),
    ]);
    if (seenGateway.running) await watchGateway(spec.id);
    known.told = seenGateway.serving;
    known.elsewhere = new Set(
      looks.filter(({ seen }) => seen.server?.placed === false).map(({ n }) => n),
    );
    known.unasked = new Set(
      looks
        .filter(({ n, seen, look: { server } }) => {
          const answers = seen.server?.phase === 'ready' && server?.postmaster.frozen === false;
          return answers && seenGateway.serving?.includes(n) === true && !known.asked.has(n);
        })
        .map(({ n }) => n),
    );
    const conf = new Map<number, string>();
    const nodes = await Promise.all(
      looks.map(async ({ n, look: found, seen }): Promise<NodeSeen> => {
        const { paths, server, files } = found;
        await noteOnDisk(standbys, found);
        const name = nodeName(spec.id, n);
        const before = await confOf(paths);
        conf.set(
          n,
          primary === null
            ? before
            : replicationConf(
                name,
                primary,
                WAITS_FOR_NOBODY,
                floorsOf(primary.floors, files?.['postgresql.conf'] ?? ''),
              ),
        );
        const node = known.nodes.get(n);
        const streaming = node?.streaming === true;
        const expected = primary !== null && seen.server?.phase === 'ready' && seen.connected;
        return {
          n,
          data: dataOf(paths),
          server:
            server === null || seen.server === null
              ? null
              : {
                  phase: seen.server.phase,
                  // Its replay pauses where its settings leave no room for what the primary allows.
                  size: node?.paused === true ? 'smaller' : compareSizes(server.size, spec.size),
                  port: server.port,
                  frozen: server.postmaster.frozen,
                  placed: seen.server.placed,
                },
          connected: seen.connected,
          silentMs: seen.silentMs,
          filesCurrent: seen.filesCurrent && before === conf.get(n),
          certificateCurrent: seen.certificateCurrent,
          streaming,
          broken: await brokenOf(
            standbys,
            found,
            !expected || primary.receiving.includes(name),
            primary?.lost.includes(name) === true,
          ),
          takesWrites: node?.takesWrites === true,
          serving: seenGateway.serving?.includes(n) === true,
          eligible: judge(known, n).eligible,
        };
      }),
    );
    const [first] = looks;
    const plan =
      first === undefined || spec.pooler === null ? null : await poolerOf(known, first.look);
    return {
      found: new Map(looks.map(({ n, look: found }) => [n, found])),
      conf,
      primary,
      pooler: plan,
      seen: {
        directory: marker?.id === spec.id ? 'ours' : existsSync(root.root) ? 'foreign' : 'absent',
        nodes,
        gateway: seenGateway,
        primaryReady: primary !== null,
        slotsCurrent:
          primary === null ||
          set.nodes.every(({ n }) => primary.slots.includes(nodeName(spec.id, n))),
        pooler: await observePooler(poolers, root, plan, listenerFor(spec)),
        owned: marker?.id !== spec.id || (await isOwned(machine, spec, marker)),
      },
      reachable: seenGateway.running && nodes.some(({ serving, eligible }) => serving && eligible),
    };
  };

  /** The pooler comes to the nodes by the gateway, through a Unix socket; it shows its clients the certificate of the first node. */
  const poolerOf = ({ spec }: Known, first: Found): Promise<PoolerPlan | null> =>
    planPooler(
      spec,
      { ...first.paths, socket: layout.gateway(spec.id).root },
      spec.endpoint.port,
      first,
    );

  const watchGateway = async (id: string): Promise<void> => {
    const paths = layout.gateway(id);
    if (!daemons.isWatched(paths) && !(await daemons.watch(id, paths))) changed(id);
  };

  // ── apply ──────────────────────────────────────────────────────────────────────────────────────────────────────

  const apply = async (
    known: Known,
    step: SetStep,
    { found, conf, primary, pooler }: Seeing,
  ): Promise<string> => {
    const { spec, set } = known;
    const { id } = spec;
    const [gateway, listener] = [layout.gateway(id), listenerFor(spec)];
    const at = (n: number): Found => {
      const node = found.get(n);
      if (node === undefined) throw new Error(`node ${n} was not looked at`);
      return node;
    };
    const confOfNode = (n: number): string => conf.get(n) ?? '';
    if ('n' in step) known.asked.add(step.n);
    switch (step.kind) {
      case 'make':
        return make(id, set.parent);
      case 'own':
        return own(known, [...found.values()]);
      case 'fence': {
        const { key, paths } = at(step.n);
        monitor.forget(key);
        if (!(await fence(paths))) throw new Error(`node ${step.n} does not end`);
        // It went a way of its own: whatever its files say, it cannot follow any more.
        await removeEntry(join(paths.data, 'standby.signal'));
        return 'it is recreated';
      }
      case 'openGateway': {
        const nodes = set.nodes.map(({ n, port }) => ({
          n,
          port,
          socketDirectory: layout.member(id, n).socket,
        }));
        const listen = { address: listener.address, port: spec.endpoint.port };
        await assertPlace(listener, machine.networks);
        await prepareGateway(
          gatewayOwnerOf(machine, layout.service(id)),
          gateway,
          setGatewayConfig(gateway, listen, nodes, listener),
          listener,
        );
        await openGateway(
          machine,
          gatewayOwnerOf(machine, layout.service(id)),
          gateway,
          daemons,
          id,
          listener,
        );
        return `on port ${spec.endpoint.port}`;
      }
      case 'closeGateway':
        await closeGateway(gateway, daemons);
        return step.why;
      case 'allowNetworks':
        return `${await applyAllowedNetworks(gatewayOwnerOf(machine, layout.service(id)), gateway, listener.allowedNetworks ?? [])} sessions of others ended`;
      case 'balance':
        return balance(known);
      case 'setSlots': {
        const names = set.nodes.map(({ n }) => nodeName(id, n));
        await createSlots(monitor, alive(primary).key, names);
        return names.join(', ');
      }
      case 'seed': {
        await withhold(known, step.n);
        try {
          const { why } = step;
          return await seedStandby(standbys, at(step.n), {
            primary: alive(primary),
            slot: nodeName(id, step.n),
            conf: confOfNode(step.n),
            why,
          });
        } finally {
          known.withheld.delete(step.n);
        }
      }
      case 'restart':
        return restart(known, at(step.n), step.n, confOfNode(step.n));
      case 'server':
        return applyServer(known, step.n, step.step, at(step.n), confOfNode(step.n));
      case 'pooler':
        return applyPooler(known, step, primary, pooler);
    }
  };

  const alive = (primary: Primary | null): Primary => {
    if (primary === null) throw new NotYet('the primary cannot be asked');
    return primary;
  };

  /** A directory for the nodes of a set, which runs on what its parent runs on. */
  const make = async (id: string, parent: string): Promise<string> => {
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
    });
    await rename(unfinished.root, layout.service(id).root);
    return `for PostgreSQL ${marker.installation}`;
  };

  /** Ends all of a set and gives it to the user of the service that it follows, without which it cannot follow it. */
  const own = async ({ spec: { id, set } }: Known, nodes: readonly Found[]): Promise<string> => {
    await stopPooler(poolers, layout.service(id));
    await closeGateway(layout.gateway(id), daemons);
    for (const { key, paths, server } of nodes)
      await stopIfRunning(executor, { key, paths, server });
    return ownService(machine, id, set?.parent ?? null);
  };

  const applyServer = async (
    known: Known,
    n: number,
    step: Extract<SetStep, { kind: 'server' }>['step'],
    found: Found,
    conf: string,
  ): Promise<string> => {
    if (step.kind === 'settled' || step.kind === 'wait' || step.kind === 'refuse') return '';
    if (step.kind === 'writeFiles' || step.kind === 'reload')
      await writeReplication(executor, found, conf);
    // A node that starts accepts connections before it can answer; the connections of a dead one may outlive it for a moment.
    if (step.kind === 'stop' || step.kind === 'start') await withhold(known, n);
    const act = () => applyStep(executor, known.spec, step, found);
    try {
      return await (step.kind === 'start' ? startStandby(standbys, found.key, act) : act());
    } finally {
      known.withheld.delete(n);
    }
  };

  /** From here on a node gets no new connections. */
  const withhold = async (known: Known, n: number): Promise<void> => {
    known.withheld.add(n);
    if ((await findDaemon(layout.gateway(known.spec.id)))?.frozen === false) await balance(known);
  };

  /** In order: the node gets no new connections, transactions end, then the node is stopped. Connections to a set of one node wait meanwhile. */
  const restart = async (known: Known, found: Found, n: number, conf: string): Promise<string> => {
    const { spec } = known;
    const begun = Date.now();
    try {
      await withhold(known, n);
      await holdPooler(poolers, layout.service(spec.id));
      const left = await drain(spec.id, n);
      await stopIfRunning(executor, found);
      await configureReplicated(executor, found, conf);
      await startStandby(standbys, found.key, () => startServer(executor, spec, found));
      return `in ${Date.now() - begun} ms${left === 0 ? '' : `; ${left} sessions ended with it`}`;
    } finally {
      known.withheld.delete(n);
    }
  };

  /** Waits until the sessions with a node have ended, or their time is up. @returns how many are left */
  const drain = async (id: string, n: number): Promise<number> => {
    const end = Date.now() + DRAIN_MS;
    for (;;) {
      const sessions = await sessionsOf(layout.gateway(id), n);
      if (sessions === 0 || Date.now() > end) return sessions;
      await sleep(20);
    }
  };

  /**
   * Waits until all nodes that the gateway routes to have replayed the WAL up to a position.
   *
   * @throws Error naming a node that has not done so within {@link REPLAY_MS}; the step is tried again
   */
  const untilReplayed = async (known: Known, lsn: bigint): Promise<void> => {
    const end = Date.now() + REPLAY_MS;
    for (;;) {
      const nodes = await Promise.all(
        eligibleOf(known).map(async (n) => ({
          n,
          answer: await askNode(memberKey(known.spec.id, n)),
        })),
      );
      // A node that does not answer soon gets no connections; it is asked again if it does.
      const behind = nodes.find(
        ({ answer }) => answer === null || parseLsn(answer.replayed ?? '0/0') < lsn,
      );
      if (behind === undefined) return;
      if (Date.now() > end)
        throw new Error(
          `node ${behind.n} has not replayed the role of the pooler within ${REPLAY_MS / 1000} s`,
        );
      await sleep(20);
    }
  };

  const applyPooler = async (
    known: Known,
    { step }: Extract<SetStep, { kind: 'pooler' }>,
    primary: Primary | null,
    plan: PoolerPlan | null,
  ): Promise<string> => {
    const { id } = known.spec;
    const paths = layout.service(id);
    switch (step.kind) {
      case 'startPooler':
        return startPooler(executor, id, paths, listenerFor(known.spec), plan, {
          primary: alive(primary),
          untilReplayed: (lsn) => untilReplayed(known, lsn),
        });
      case 'reloadPooler':
        return reloadPooler(poolers, id, paths, planOrThrow(plan));
      case 'stopPooler':
        await stopPooler(poolers, paths);
        return step.why;
      default:
        return '';
    }
  };

  // ── the interface ──────────────────────────────────────────────────────────────────────────────────────────────

  const converge = async (
    spec: ServiceSpec,
    set: ReplicaSet,
    begin: BeginStep,
  ): Promise<Verdict> => {
    const known = knownOf(spec, set);
    const seeing = await observe(known);
    const step = decideSet(spec, seeing.seen);
    const before: Seen = { reachable: seeing.reachable, present: seeing.seen.directory === 'ours' };
    const name = setStepName(step);
    if (name === null) {
      if (step.kind === 'pooler' && step.step.kind === 'refuse')
        return {
          did: null,
          detail: null,
          seen: before,
          outcome: 'failed',
          reason: `${layout.service(spec.id).root}: ${step.step.why}`,
        };
      if ((step.kind === 'pooler' || step.kind === 'server') && step.step.kind === 'wait')
        return {
          did: null,
          detail: step.step.why,
          seen: before,
          outcome: 'again',
          waitMs: step.step.waitMs,
        };
      for (const { paths } of seeing.found.values())
        if (existsSync(paths.logs)) await pruneLogs(paths.logs);
      await Promise.all([capLog(layout.service(spec.id).pooler), capLog(layout.gateway(spec.id))]);
      return { did: null, detail: null, seen: before, outcome: 'settled' };
    }
    await begin(name, before);
    try {
      const detail = await apply(known, step, seeing);
      return { did: name, detail, seen: { ...before, present: true }, outcome: 'again', waitMs: 0 };
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (error instanceof NotYet)
        return { did: null, detail: reason, seen: before, outcome: 'again', waitMs: 100 };
      return {
        did: name,
        detail: reason,
        seen: before,
        outcome: 'failed',
        reason: `${name}: ${reason}`,
      };
    }
  };

  /** Takes the slots of a set away: those of a primary that does not run with its files. */
  const dropSetSlots = async (id: string, parent: string): Promise<void> => {
    const prefix = nodeName(id, 0).slice(0, -1);
    const primary = await askPrimary(parent);
    const n = layout.primaryOf(parent);
    if (primary !== null) {
      const ours = primary.slots.filter((name) => name.startsWith(prefix));
      // Its nodes have ended, which the primary may be about to see.
      if ((await dropSlots(monitor, primary.key, ours)) < ours.length)
        throw new NotYet('its slots are dropped when none is in use');
      return;
    }
    const paths = layout.member(parent, n);
    if ((await findServer(paths)) !== null)
      throw new NotYet('its slots are dropped when the primary can be asked');
    const directory = join(paths.data, 'pg_replslot');
    const slots = (await listEntries(directory).catch(noneOf('ENOENT', 'ENOTDIR'))) ?? [];
    for (const name of slots.filter((slot) => slot.startsWith(prefix)))
      await removeEntry(join(directory, name));
  };

  return {
    converge,
    dropSlots: dropSetSlots,
    /** The state of the nodes of a set; null: it is not a set, or was not observed yet. */
    states: (id: string): ReplicaState[] | null => {
      const known = sets.get(id);
      if (known === undefined) return null;
      return known.set.nodes.map(({ n }) => {
        const lag = known.nodes.get(n)?.lag ?? null;
        const { detail } = judge(known, n);
        return {
          node: n,
          serving: known.told?.includes(n) === true,
          lag_bytes: lag?.bytes ?? null,
          lag_seconds: lag?.seconds ?? null,
          detail,
        };
      });
    },
    /** The problems of the read replica sets of a service. */
    warnings: (parent: string): Warning[] => {
      const missing = [...sets.values()]
        .filter(({ spec, set }) => set.parent === parent && spec.power === 'running')
        .flatMap((known) =>
          known.set.nodes.flatMap(({ n }) => {
            const { eligible, detail } = judge(known, n);
            return eligible ? [] : [`node ${n} of read replica set ${known.spec.id}: ${detail}`];
          }),
        );
      if (missing.length === 0) return [];
      const message = `no new connection is routed to ${missing.join('; ')}`;
      return [{ code: 'REPLICA_MISSING', message }];
    },
    forget: (id: string): void => {
      sets.delete(id);
      daemons.forget(layout.gateway(id));
    },
    close: (): void => {
      clearInterval(timer);
      daemons.close();
    },
  };
}

function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((n) => b.includes(n));
}
