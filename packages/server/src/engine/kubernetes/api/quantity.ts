/**
 * Quantities as Kubernetes writes them: a number with the suffix of a unit.
 * https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
 */

const FACTORS: ReadonlyMap<string, number> = new Map([
  ['n', 1e-9],
  ['u', 1e-6],
  ['m', 1e-3],
  ['', 1],
  ['k', 1e3],
  ['M', 1e6],
  ['G', 1e9],
  ['T', 1e12],
  ['Ki', 2 ** 10],
  ['Mi', 2 ** 20],
  ['Gi', 2 ** 30],
  ['Ti', 2 ** 40],
]);

/** The number of a quantity; null: it is none. */
export function quantityIn(text: string): number | null {
  const [, number, unit = ''] = /^(\d{1,18}(?:\.\d{1,9})?)([a-zA-Z]*)$/.exec(text) ?? [];
  const factor = FACTORS.get(unit);
  return number === undefined || factor === undefined ? null : Number(number) * factor;
}
