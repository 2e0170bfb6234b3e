/**
 * Entries of the audit log that stand for more than one call. Calls that changed nothing are counted: one entry for each key, operation, answer and
 * service that it reads, and ten minutes, whatever ids the calls name. A key cannot make the audit log grow by being refused.
 */
import type { AuditCount, AuditFacts } from '../store/audit-log.ts';

export type CountedEntry = { facts: AuditFacts; count: number; lastAt: Date; written: boolean };

/** For how long calls are counted in the same entry. */
const WINDOW_MS = 600_000;
/** Entries of one window: of callers without a valid key, who choose what they say their key and project are, and of all. */
const MOST_UNAUTHENTICATED = 100;
const MOST_ENTRIES = 20_000;

export function createAuditCounts(now: () => number = Date.now) {
  let open = new Map<string, CountedEntry>();
  let beganMs = now();
  let unauthenticated = 0;
  /** Entries that differ from their rows, or have none. */
  let changed = new Set<CountedEntry>();

  const add = (facts: AuditFacts, known: boolean): boolean => {
    const name = nameOf(facts);
    const found = open.get(name);
    if (found !== undefined) {
      found.count++;
      found.lastAt = new Date(now());
      changed.add(found);
      return true;
    }
    if (open.size >= MOST_ENTRIES || (!known && ++unauthenticated > MOST_UNAUTHENTICATED))
      return false;
    const entry = {
      facts: { ...facts, at: new Date(now()) },
      count: 1,
      lastAt: new Date(now()),
      written: false,
    };
    open.set(name, entry);
    changed.add(entry);
    return true;
  };

  return {
    /** Counts a call. @param known whether its key is valid. @returns false where there are too many entries already */
    count: (facts: AuditFacts, known: boolean): boolean => {
      if (Math.abs(now() - beganMs) >= WINDOW_MS) {
        open = new Map();
        beganMs = now();
        unauthenticated = 0;
      }
      return add(facts, known);
    },
    /** Entries to insert, whose counts are as they are now. */
    takeNew: (): AuditFacts[] => {
      const fresh = [...changed].filter(({ written }) => !written);
      for (const entry of fresh) {
        entry.written = true;
        changed.delete(entry);
      }
      return fresh.map(({ facts, count, lastAt }) => ({
        ...facts,
        count,
        last_at: count === 1 ? null : lastAt,
      }));
    },
    /** Counts that have changed since their entries were written. */
    takeCounts: (): AuditCount[] => {
      const written = [...changed].filter((entry) => entry.written);
      changed = new Set([...changed].filter((entry) => !entry.written));
      return written.map(({ facts, count, lastAt }) => ({
        requestId: facts.request_id,
        count,
        lastAt,
      }));
    },
  };
}

/** Calls with the same name are counted together. Ids that a refused call names are not part of it: they may be made up. */
function nameOf({ project_id, public_key, call, status, code, service_id }: AuditFacts): string {
  return JSON.stringify([
    project_id,
    public_key,
    call,
    status,
    code ?? null,
    code == null ? service_id : null,
  ]);
}
