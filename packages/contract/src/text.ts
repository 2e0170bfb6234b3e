/**
 * Invisible characters: those that control terminals and browsers, and those that make two
 * different texts look the same. Names must not contain them, and programs show them as escapes in
 * texts of others.
 */

/**
 * Control characters (Cc), format characters (Cf: directions, joiners, zero width, tags), halves of
 * surrogate pairs (Cs), the separators of lines and paragraphs, and letters that are blank.
 */
const INVISIBLE = String.raw`\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u115F\u1160\u3164\uFFA0`;

/** The pattern of names, for JSON Schema. */
export const VISIBLE_PATTERN = `^[^${INVISIBLE}]*$`;

/**
 * The same without classes of Unicode, which the regular expressions of Python and others lack, and
 * as far as 16 bits of a character reach: for documents that other programs read. A name that it
 * lets through in error is refused by {@link VISIBLE_PATTERN}.
 */
export const PORTABLE_VISIBLE_PATTERN = [
  String.raw`^[^\u0000-\u001F\u007F-\u009F\u00AD\u0600-\u0605\u061C\u06DD\u070F\u0890\u0891\u08E2`,
  String.raw`\u115F\u1160\u180E\u200B-\u200F\u2028-\u202E\u2060-\u2064\u2066-\u206F\u3164\uFEFF`,
  String.raw`\uFFA0\uFFF9-\uFFFB]*$`,
].join('');

const LONE_SURROGATE = /\p{Cs}/u;
/**
 * Scripts and emoji need joiners (ZWNJ, ZWJ) within a text; new lines and tabs are part of a log
 * line or a value.
 */
const SHOWN_AS_ESCAPE = new RegExp(String.raw`(?![\n\t\u200C\u200D])[${INVISIBLE}]`, 'gu');

/**
 * Shows a text of others in a terminal, on a page or to an agent: invisible characters become
 * escapes, like \x1b and \u202e.
 */
export function makeVisible(text: string): string {
  return text.replace(SHOWN_AS_ESCAPE, (character) => {
    const code = character.codePointAt(0) ?? 0;
    if (code <= 0xff) return `\\x${code.toString(16).padStart(2, '0')}`;
    return code <= 0xffff
      ? `\\u${code.toString(16).padStart(4, '0')}`
      : `\\u{${code.toString(16)}}`;
  });
}

/**
 * Shows JSON text, or YAML whose strings are in double quotes, with escapes in place of invisible
 * characters: the meaning stays the same.
 */
export function escapeInJson(json: string): string {
  return json.replace(SHOWN_AS_ESCAPE, (character) =>
    character
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

/** JSON text whose strings were shown by {@link makeVisible}. */
export function visibleJson(json: string): string {
  // An invisible character is in the text itself, or as an escape.
  if (!/\\[ubfr]/.test(json) && makeVisible(json) === json) return json;
  return JSON.stringify(
    JSON.parse(json, (_key, value: unknown) =>
      typeof value === 'string' ? makeVisible(value) : value,
    ),
  );
}

/** The deepest JSON that is accepted; no call needs more than 4 levels. */
export const MAX_JSON_DEPTH = 32;

/**
 * Why a body or a query is refused before its schema is applied; null: it is not. Takes time and
 * memory linear in its size.
 */
export function whyNotJson(value: unknown): string | null {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_JSON_DEPTH)
      return (
        `found arrays or objects nested more than ${MAX_JSON_DEPTH} deep; ` +
        `allowed are ${MAX_JSON_DEPTH}`
      );
    const next: unknown[] = [];
    for (const one of level) {
      if (typeof one === 'string' && LONE_SURROGATE.test(one))
        return `found ${inQuotes(one)}: half of a surrogate pair, which is no character`;
      if (typeof one !== 'object' || one === null) continue;
      for (const [key, inner] of Object.entries(one)) next.push(key, inner);
    }
    level = next;
  }
  return null;
}

/** A value of others in a message, as JSON of at most 80 characters. */
export function inQuotes(value: unknown): string {
  const text = escapeInJson(JSON.stringify(value) ?? 'nothing');
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}

/**
 * The known name that is most similar to a misspelled one; null: no name is known. Upper and lower
 * case count as the same.
 */
export function nearestName(name: string, known: readonly string[]): string | null {
  return nearest(name, known)?.one ?? null;
}

/** The most letters in which a misspelled name differs from the known name that was meant. */
const MISSPELLED_LETTERS = 2;

/** The known name that another name is probably a misspelling of; null: it is another name. */
export function misspelledName(name: string, known: readonly string[]): string | null {
  // A name that differs in length by more differs in more letters; most cost no comparison.
  const similar = known.filter((one) => Math.abs(one.length - name.length) <= MISSPELLED_LETTERS);
  const found = nearest(name, similar);
  return found !== null && found.distance <= MISSPELLED_LETTERS ? found.one : null;
}

function nearest(name: string, known: readonly string[]): { one: string; distance: number } | null {
  // No known name is as long: the comparison would only take time.
  const wanted = name.slice(0, 64).toLowerCase();
  const ranked = known.map((one) => ({ one, distance: editDistance(wanted, one.toLowerCase()) }));
  return ranked.toSorted((a, b) => a.distance - b.distance)[0] ?? null;
}

/**
 * The number of letters to insert, remove or replace to turn one text into the other (Levenshtein).
 */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}

/** The code of a region, or another name that it has. */
export const REGION_CODE_PATTERN = '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$';

/**
 * Where a browser may return to after a login: the program that began it is on the machine of the
 * browser, so no other machine gets a code.
 */
export const LOOPBACK_PATTERN =
  '^http://(localhost|127\\.0\\.0\\.1|\\[::1\\])(:[1-9][0-9]{0,4})?(/[A-Za-z0-9._~/-]{0,200})?$';
