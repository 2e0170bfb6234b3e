/** Keeps in memory what an engine under test records. */
import type { DrillKind, OperationStep } from '@howdah/contract';
import { takeUsablePort, type PortLedger, type HighAvailability } from '../spec.ts';
import type { ClusterRecords, ServerPort, KeptLogs, KeptPart } from '../records.ts';

type Row = {
  primary: number;
  servers: readonly ServerPort[];
  switchover: boolean;
  drill: DrillKind | null;
};
type Asked = Partial<Pick<Row, 'switchover' | 'drill'>>;
type Ended = { id: string; steps: readonly OperationStep[]; why: string | null };

export type MemoryRecords = {
  /** The part that the engine is given. */
  readonly store: ClusterRecords;
  /** Adds a service, or records a primary as another control plane would. */
  add: (id: string, primary: number) => void;
  forget: (id: string) => void;
  /** Asks for another primary, or for a drill. */
  ask: (id: string, wanted: Asked) => void;
  /** The recorded primary; null: the service is unknown. */
  primary: (id: string) => number | null;
  servers: (id: string) => readonly ServerPort[];
  /** The desired state with what was asked for. */
  current: (id: string, ha: HighAvailability) => HighAvailability;
  /** Called before another primary is recorded. */
  onRecord: (watch: (id: string, from: number, to: number) => Promise<void>) => void;
  readonly begun: readonly string[];
  readonly ended: readonly Ended[];
  readonly drillsTaken: readonly string[];
};

/** @param ports what servers behind a gateway get */
export function createMemoryRecords(ports: PortLedger): MemoryRecords {
  const rows = new Map<string, Row>();
  const begun: string[] = [];
  const ended: Ended[] = [];
  const drillsTaken: string[] = [];
  let watch: Parameters<MemoryRecords['onRecord']>[0] = async () => undefined;

  const rowOf = (id: string): Row => {
    const row = rows.get(id) ?? { primary: 0, servers: [], switchover: false, drill: null };
    rows.set(id, row);
    return row;
  };
  const store: ClusterRecords = {
    read: async (id) => ({ ...rowOf(id) }),
    reserveServers: async (id, numbers, isUsable) => {
      const row = rowOf(id);
      for (const n of numbers) {
        if (row.servers.some((server) => server.n === n)) continue;
        const port = await takeUsablePort(ports, isUsable);
        row.servers = [...row.servers, { n, port }].toSorted((a, b) => a.n - b.n);
      }
      return row.servers;
    },
    releaseServers: async (id, numbers) => {
      const row = rowOf(id);
      row.servers = row.servers.filter(({ n }) => !numbers.includes(n));
    },
    begin: async (id) => void begun.push(id),
    recordPrimary: async (id, from, to) => {
      await watch(id, from, to);
      const row = rowOf(id);
      if (row.primary === from) Object.assign(row, { primary: to, switchover: false });
      return row.primary;
    },
    end: async (id, steps, why) => void ended.push({ id, steps, why }),
    takeDrill: async (id) => {
      drillsTaken.push(id);
      const row = rowOf(id);
      const wasAsked = row.drill !== null;
      row.drill = null;
      return wasAsked;
    },
  };
  return {
    store,
    begun,
    ended,
    drillsTaken,
    add: (id, primary) => void Object.assign(rowOf(id), { primary }),
    forget: (id) => void rows.delete(id),
    ask: (id, wanted) => void Object.assign(rowOf(id), wanted),
    primary: (id) => rows.get(id)?.primary ?? null,
    servers: (id) => rows.get(id)?.servers ?? [],
    current: (id, ha) => ({ ...ha, switchover: rowOf(id).switchover, drill: rowOf(id).drill }),
    onRecord: (called) => {
      watch = called;
    },
  };
}

// Keeps in memory the server logs that an engine under test keeps.

type LogRow = KeptPart & Readonly<{ serviceId: string; server: number; lines: Buffer }>;

export type MemoryLogs = Readonly<{
  /** The part that the engine is given. */
  store: KeptLogs;
  /** Oldest first; a test may take some away, or change them. */
  rows: LogRow[];
}>;

export function createMemoryLogs(): MemoryLogs {
  const rows: LogRow[] = [];
  let added = 0;
  const of = (serviceId: string, server: number): LogRow[] =>
    rows.filter((row) => row.serviceId === serviceId && row.server === server);
  return {
    rows,
    store: {
      list: async (serviceId, server) => of(serviceId, server).toReversed(),
      read: async (ids) =>
        new Map(rows.filter(({ id }) => ids.includes(id)).map(({ id, lines }) => [id, lines])),
      add: async (serviceId, server, part) => {
        const known = of(serviceId, server).filter(({ pod }) => pod === part.pod);
        if (known.some(({ until }) => until >= part.from)) return false;
        added += 1;
        rows.push({ id: String(added), serviceId, server, ...part });
        return true;
      },
    },
  };
}
