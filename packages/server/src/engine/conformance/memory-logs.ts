/** Keeps in memory the server logs that an engine under test keeps. */
import type { KeptLogs, KeptPart } from '../kept-logs.ts';

type Row = KeptPart & Readonly<{ serviceId: string; server: number; lines: Buffer }>;

export type MemoryLogs = Readonly<{
  /** The part that the engine is given. */
  store: KeptLogs;
  /** Oldest first; a test may take some away, or change them. */
  rows: Row[];
}>;

export function createMemoryLogs(): MemoryLogs {
  const rows: Row[] = [];
  let added = 0;
  const of = (serviceId: string, server: number): Row[] =>
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
