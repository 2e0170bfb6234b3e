/** The canonical form of JSON (RFC 8785), which signatures are made of. */

/**
 * The one text that a value of JSON has. Numbers are those of JavaScript.
 *
 * @throws Error for what JSON cannot hold
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item)).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    // The default order of texts is by their UTF-16 units, as the standard has it.
    const members = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
    const texts = members.map(([name, item]) => `${JSON.stringify(name)}:${canonicalJson(item)}`);
    return `{${texts.join(',')}}`;
  }
  const text: unknown = JSON.stringify(value);
  if (typeof text !== 'string' || (typeof value === 'number' && !Number.isFinite(value)))
    throw new Error(`${typeof value}: no value of JSON`);
  return text;
}
