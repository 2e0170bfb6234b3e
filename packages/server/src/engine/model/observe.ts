/** The state of model services, as users read it: plausible figures that follow from the seed. */
import type { LogEntry, Member as NodeState, ReplicaState, Warning } from '@howdah/contract';
import {
  BadCursor,
  EngineUnavailable,
  type LogPage,
  type LogQuery,
  type Observing,
  type Usage,
} from '../engine.ts';
import { between } from './random.ts';
import type { Model } from './model.ts';
import { primaryOf, rowsAt, streamingOf, type ModelNode, type ModelService } from './state.ts';

const MINUTE_MS = 60_000;
const BYTES_PER_ROW = 120;
/** The size of a new PostgreSQL database, within bounds. */
const EMPTY_BYTES: readonly [number, number] = [38_000_000, 46_000_000];

export function createObserving(
  model: Model,
  open: () => Promise<void>,
  readLagLimit: Observing['readLagLimit'],
): Observing {
  const { state } = model;
  return {
    readLagLimit,
    warnings: async (id) => {
      await open();
      return warningsOf(model, id);
    },
    logs: async (id, node, query, signal) => {
      await open();
      signal.throwIfAborted();
      return readLogs(state.find(id), node, query);
    },
    usage: async (id) => {
      await open();
      return usageOf(model, id);
    },
    replicas: async (id) => {
      await open();
      const service = state.find(id);
      return service === null ? [] : replicasOf(model, service);
    },
    servers: async (id) => {
      await open();
      const service = state.find(id);
      return service === null ? [] : serversOf(model, service);
    },
    synchronisedSlots: async () => {
      await open();
      return null;
    },
  };
}

/** The nodes of a service that follow a primary that runs. */
function followersOf({ state }: Model, service: ModelService): ModelNode[] {
  if (service.parent === null) return streamingOf(service);
  const parent = state.find(service.parent);
  const isFollowed = parent !== null && primaryOf(parent)?.runs === true;
  return isFollowed ? service.nodes.filter(({ runs }) => runs) : [];
}

function replicasOf(model: Model, service: ModelService): ReplicaState[] {
  const followers = followersOf(model, service);
  return service.nodes
    .filter((node) => node !== primaryOf(service))
    .map((node) => {
      const follows = followers.includes(node);
      return {
        node: node.n,
        serving: node.isServing,
        lag_bytes: follows ? 0 : null,
        lag_seconds: follows ? 0 : null,
        detail: follows ? 'follows the primary' : 'does not follow the primary',
      };
    });
}

function serversOf(model: Model, service: ModelService): NodeState[] {
  const followers = followersOf(model, service);
  const nothing = { synchronous: false, lag_bytes: null, lag_seconds: null };
  return service.nodes.map((node): NodeState => {
    const { n, runs } = node;
    if (node === primaryOf(service))
      return { node: n, role: 'primary', state: runs ? 'running' : 'stopped', ...nothing };
    if (!followers.includes(node))
      return { node: n, role: 'standby', state: runs ? 'disconnected' : 'stopped', ...nothing };
    const synchronous = service.sync > 0;
    return {
      node: n,
      role: 'standby',
      state: 'streaming',
      synchronous,
      lag_bytes: 0,
      lag_seconds: 0,
    };
  });
}

/** Problems of its snapshots, of its replicas, and of its read replica sets. */
function warningsOf(model: Model, id: string): Warning[] {
  const { state } = model;
  const service = state.find(id);
  if (service === null) return [];
  const { snapshotProblem } = service;
  return [
    ...(snapshotProblem === null
      ? []
      : [{ code: 'SNAPSHOT' as const, message: `no snapshot was taken: ${snapshotProblem}` }]),
    ...[service, ...state.setsOf(id)].flatMap((one) => missingReplicas(model, one)),
  ];
}

function missingReplicas(model: Model, service: ModelService): Warning[] {
  if (service.gateway === null) return [];
  const missing = replicasOf(model, service).filter(({ lag_bytes: bytes }) => bytes === null);
  if (missing.length === 0) return [];
  const kind = service.parent === null ? 'member' : 'node';
  const who = missing.map(({ node }) => `${kind} ${node}`).join(' and ');
  const where = service.parent === null ? '' : ` of its read replica set ${service.id}`;
  const message = `${who}${where} does not follow the primary; this is being repaired`;
  return [{ code: 'REPLICA_MISSING', message }];
}

/** The disk space of each server of a service. */
export function storageBytesOf({ seed, clock }: Model, service: ModelService): number {
  const empty = between(EMPTY_BYTES, seed, 'empty', service.id);
  return empty + rowsAt(service, clock.nowMs()) * BYTES_PER_ROW;
}

/** The archived WAL of a service. */
export function archiveBytesOf({ clock }: Model, service: ModelService): number {
  return rowsAt(service, clock.nowMs()) * BYTES_PER_ROW * 2;
}

/** The service whose data it has: of a set, the one that it follows. */
export function dataOwnerOf({ state }: Model, service: ModelService): ModelService {
  return service.parent === null ? service : (state.find(service.parent) ?? service);
}

function usageOf(model: Model, id: string): Usage[] {
  const { state, clock, seed } = model;
  const service = state.find(id);
  const followers = service === null ? [] : followersOf(model, service);
  const first = service?.primary ?? 0;
  const running = (service?.nodes ?? [])
    .filter((node) => node.runs)
    .toSorted((a, b) => Number(b.n === first) - Number(a.n === first) || a.n - b.n);
  if (service === null || running.length === 0)
    throw new EngineUnavailable('the server is not running');
  const minute = Math.floor(clock.nowMs() / MINUTE_MS);
  return running.map((node) => {
    const question = [service.id, node.n, minute] as const;
    const [cpuMillis, memoryGbs] =
      node.size === 'shared' ? [1000, 1] : [node.size.cpuMillis, node.size.memoryGbs];
    const rate = between([1, 20], seed, 'rate', service.id, node.n);
    const usedMillis = between([5, Math.floor(cpuMillis * 0.4)], seed, 'cpu', ...question);
    const isFollower = node !== primaryOf(service);
    return {
      node: node.n,
      cpuMillis: usedMillis,
      memoryBytes: between([60_000_000, Math.floor(memoryGbs * 4e8)], seed, 'memory', ...question),
      storageBytes: storageBytesOf(model, dataOwnerOf(model, service)),
      connections: between([1, 20], seed, 'connections', ...question),
      transactions: Math.floor((clock.nowMs() / 1000) * rate),
      waits: {
        cpu: {
          millis: between([0, Math.floor(usedMillis * 0.6)], seed, 'cpu wait', ...question),
          neighbours: between([0, 3], seed, 'cpu neighbours', ...question),
        },
        writes: {
          millis: between([0, 120], seed, 'write wait', ...question),
          neighbours: between([0, 3], seed, 'write neighbours', ...question),
        },
      },
      lag: isFollower && followers.includes(node) ? { bytes: 0, seconds: 0 } : null,
    };
  });
}

/** One page of a server log, newest entry first. */
function readLogs(service: ModelService | null, node: number | null, query: LogQuery): LogPage {
  const before = query.cursor === null ? Infinity : parseCursor(query.cursor);
  const n = node ?? shownNode(service);
  const terms = query.search.map((term) => term.toLowerCase());
  const found = (service?.logLines ?? [])
    .filter(
      (line) =>
        line.node === n &&
        line.number < before &&
        (query.sinceMs === null || line.atMs >= query.sinceMs) &&
        (query.untilMs === null || line.atMs < query.untilMs) &&
        (query.severities.length === 0 || query.severities.includes(line.severity)) &&
        terms.every((term) => line.message.toLowerCase().includes(term)),
    )
    .toReversed();
  const page = found.slice(0, query.limit);
  const entries = page.map(({ atMs, severity, message }): LogEntry => ({
    timestamp: new Date(atMs).toISOString(),
    severity,
    message,
  }));
  const last = page.at(-1);
  const cursor = last === undefined || page.length === found.length ? null : cursorOf(last.number);
  return { entries, cursor };
}

/** The server whose log is shown: the primary, or the first node of a set. */
function shownNode(service: ModelService | null): number {
  if (service === null) return 0;
  return primaryOf(service)?.n ?? service.nodes[0]?.n ?? 0;
}

const cursorOf = (number: number): string => Buffer.from(`line:${number}`).toString('base64url');

function parseCursor(cursor: string): number {
  const match = /^line:(\d{1,15})$/.exec(Buffer.from(cursor, 'base64url').toString('utf8'));
  if (match?.[1] === undefined)
    throw new BadCursor('cursor: not one that an earlier page handed out');
  return Number(match[1]);
}
