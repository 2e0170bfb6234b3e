/**
 * Which incidents open and resolve, given those of before and the conditions that hold. An incident
 * opens when its condition has held for the time of its rule, and resolves when it has not held for
 * {@link STEADY_MS}; the next one of the same kind opens no sooner than that after it. So a
 * condition that comes and goes sends two messages in ten minutes at most.
 */
import type { AlertRuleName } from '@howdah/contract';
import type { Condition, RuleOf } from './conditions.ts';

/** The least time that an incident stays open, or resolved. */
export const STEADY_MS = 300_000;

/** An incident as it is stored: not resolved, or resolved within {@link STEADY_MS}. */
export type StoredIncident = {
  id: string;
  project_id: string;
  rule: AlertRuleName;
  subject: string;
  service_id: string | null;
  about: string;
  message: string;
  /** Since when its condition holds. */
  since: Date;
  /** null: its condition has not held for long enough. */
  opened: Date | null;
  /** Since when its condition does not hold; null: it holds. */
  cleared: Date | null;
  resolved: Date | null;
};

export type IncidentChanges = {
  /** Conditions that are new: an incident begins, and opens at once if `opens`. */
  begun: { condition: Condition; opens: boolean }[];
  /** Incidents that open now. */
  opened: StoredIncident[];
  /** Ids of those that have never opened, and whose condition does not hold any more. */
  forgotten: string[];
  /** Ids of open ones whose condition has ended, or holds again. */
  cleared: string[];
  held: string[];
  resolved: StoredIncident[];
  /** Incidents whose condition has other figures now. */
  reworded: { id: string; message: string }[];
};

const keyOf = (projectId: string, rule: string, subject: string): string =>
  JSON.stringify([projectId, rule, subject]);

export function incidentChanges(
  now: Date,
  stored: readonly StoredIncident[],
  conditions: readonly Condition[],
  ruleIn: RuleOf,
): IncidentChanges {
  const holding = new Map(
    conditions.map(({ projectId, rule, subject, message }) => [
      keyOf(projectId, rule, subject),
      message,
    ]),
  );
  const isHolding = (one: StoredIncident): boolean =>
    holding.has(keyOf(one.project_id, one.rule, one.subject));
  const isOver = (since: Date, ms: number): boolean => now.getTime() - since.getTime() >= ms;
  const keysOf = (some: readonly StoredIncident[]): Set<string> =>
    new Set(some.map((one) => keyOf(one.project_id, one.rule, one.subject)));
  const unresolved = stored.filter(({ resolved }) => resolved === null);
  const known = keysOf(unresolved);
  const resting = keysOf(
    stored.filter(({ resolved }) => resolved !== null && !isOver(resolved, STEADY_MS)),
  );
  const mayOpen = (projectId: string, rule: AlertRuleName, subject: string, since: Date): boolean =>
    isOver(since, ruleIn(projectId, rule).forMinutes * 60_000) &&
    !resting.has(keyOf(projectId, rule, subject));

  const pending = unresolved.filter(({ opened }) => opened === null);
  const open = unresolved.filter(({ opened }) => opened !== null);
  return {
    begun: conditions
      .filter(({ projectId, rule, subject }) => !known.has(keyOf(projectId, rule, subject)))
      .map((condition) => {
        const { projectId, rule, subject } = condition;
        return { condition, opens: mayOpen(projectId, rule, subject, now) };
      }),
    opened: pending.filter(
      (one) => isHolding(one) && mayOpen(one.project_id, one.rule, one.subject, one.since),
    ),
    forgotten: idsOf(pending.filter((one) => !isHolding(one))),
    cleared: idsOf(open.filter((one) => !isHolding(one) && one.cleared === null)),
    held: idsOf(open.filter((one) => isHolding(one) && one.cleared !== null)),
    resolved: open.filter(
      (one) => !isHolding(one) && one.cleared !== null && isOver(one.cleared, STEADY_MS),
    ),
    reworded: unresolved.flatMap((one) => {
      const message = holding.get(keyOf(one.project_id, one.rule, one.subject));
      return message === undefined || message === one.message ? [] : [{ id: one.id, message }];
    }),
  };
}

const idsOf = (some: readonly StoredIncident[]): string[] => some.map(({ id }) => id);
