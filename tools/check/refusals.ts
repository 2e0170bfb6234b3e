/**
 * Compares what a check found with the list of exceptions. An exception without a finding is
 * refused as well.
 */
import type { Violation } from './layers.ts';

const LIST = 'tools/check/exceptions.ts';

/** An excepted import also excepts the cycles that lead over it. */
export function refusedImports(
  violations: readonly Violation[],
  exceptions: Readonly<Record<string, string>>,
): string[] {
  const used = new Set<string>();
  const refused = violations.filter(({ found }) => {
    const known = Object.keys(exceptions).filter((edge) => found.includes(edge));
    for (const edge of known) used.add(edge);
    return known.length === 0;
  });
  const unused = Object.keys(exceptions).filter((edge) => !used.has(edge));
  return [
    ...refused.map(({ rule, found }) => `${rule}: ${found}`),
    ...unused.map((edge) => `no longer an exception, remove it from ${LIST}: ${edge}`),
  ];
}

/**
 * @param counts what is over its limit, with its count; `unit` says what is counted and what to do
 */
export function exceedingCounts(
  counts: ReadonlyMap<string, number>,
  exceptions: Readonly<Record<string, number>>,
  unit: string,
): string[] {
  const refused = [...counts].filter(([found, count]) => count > (exceptions[found] ?? 0));
  const unused = Object.keys(exceptions).filter((found) => !counts.has(found));
  return [
    ...refused.map(([found, count]) => `${found}: ${count} ${unit}`),
    ...unused.map((found) => `no longer an exception, remove it from ${LIST}: ${found}`),
  ];
}
