/** The recorded primaries of an engine under test, in memory. */
import type { DrillKind, OperationStep } from '@howdah/contract';
import type { PrimaryStore } from '../engine.ts';
import type { HighAvailability } from '../spec.ts';

type Row = { primary: number; leave: number | null; drill: DrillKind | null };
type Ended = { id: string; steps: readonly OperationStep[]; why: string | null };

export type PrimaryRecords = {
  /** The part that the engine is given. */
  readonly store: PrimaryStore;
  add: (id: string, primary: number) => void;
  forget: (id: string) => void;
  /** Asks for another primary, or for a drill. */
  ask: (id: string, wanted: Partial<Pick<Row, 'leave' | 'drill'>>) => void;
  primary: (id: string) => number | null;
  /** The spec with the recorded primary, and with what was asked for. */
  current: (id: string, ha: HighAvailability) => HighAvailability;
  /** Called before another primary is recorded. */
  onRecord: (watch: (id: string, from: number, to: number) => Promise<void>) => void;
  readonly begun: readonly string[];
  readonly ended: readonly Ended[];
  readonly drillsTaken: readonly string[];
};

export function createPrimaryRecords(): PrimaryRecords {
  const rows = new Map<string, Row>();
  const begun: string[] = [];
  const ended: Ended[] = [];
  const drillsTaken: string[] = [];
  let watch: Parameters<PrimaryRecords['onRecord']>[0] = async () => undefined;
  return {
    begun,
    ended,
    drillsTaken,
    add: (id, primary) => void rows.set(id, { primary, leave: null, drill: null }),
    forget: (id) => void rows.delete(id),
    ask: (id, wanted) => void Object.assign(rows.get(id) ?? {}, wanted),
    primary: (id) => rows.get(id)?.primary ?? null,
    current: (id, ha) => ({ ...ha, ...rows.get(id) }),
    onRecord: (called) => {
      watch = called;
    },
    store: {
      begin: async (id) => void begun.push(id),
      primary: async (id) => rows.get(id)?.primary ?? null,
      recordPrimary: async (id, from, to) => {
        await watch(id, from, to);
        const row = rows.get(id);
        if (row?.primary === from) Object.assign(row, { primary: to, leave: null });
        return row?.primary ?? null;
      },
      end: async (id, steps, why) => void ended.push({ id, steps, why }),
      takeDrill: async (id) => {
        drillsTaken.push(id);
        const row = rows.get(id);
        const wasAsked = row !== undefined && row.drill !== null;
        if (row !== undefined) row.drill = null;
        return wasAsked;
      },
    },
  };
}
