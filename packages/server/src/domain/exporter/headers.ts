/** Headers that a user adds to the requests of an exporter. */

/** RFC 9110, 5.6.2: the characters of a header's name. */
const NAME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/;
/** Visible ASCII and spaces: what every receiver reads alike. */
const VALUE = /^[\x20-\x7e]*$/;
/** Those that the request has by itself, and those that would change how it is read. */
const RESERVED = [
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'user-agent',
];

/** Why headers cannot be sent; null: they can. */
export function headersProblem(headers: Readonly<Record<string, string>>): string | null {
  const names = Object.keys(headers);
  const misshapen = names.find((name) => !NAME.test(name));
  if (misshapen !== undefined)
    return `found the name ${JSON.stringify(misshapen.slice(0, 64))}, which no header can have`;
  const reserved = names.find((name) => RESERVED.includes(name.toLowerCase()));
  if (reserved !== undefined) return `found ${reserved}, which Howdah sets itself`;
  if (new Set(names.map((name) => name.toLowerCase())).size < names.length)
    return 'found a name twice, in different spellings';
  const bad = names.find((name) => !VALUE.test(headers[name] ?? ''));
  return bad === undefined
    ? null
    : `${bad}: found a character that is no visible ASCII; encode the value`;
}
