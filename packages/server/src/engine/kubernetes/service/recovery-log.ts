/** Why a recovery has failed, by the output of its pod. Names of a tenant may be in it. */
import { Type } from 'typebox';
import { Value } from 'typebox/value';

/** A line of CloudNativePG; `record` is one of PostgreSQL. */
const LINE = Type.Object({
  msg: Type.Optional(Type.String()),
  error: Type.Optional(Type.String()),
  record: Type.Optional(
    Type.Object({ error_severity: Type.String(), message: Type.Optional(Type.String()) }),
  ),
});

/** Longest reason that users are shown. */
const MAX_LENGTH = 500;
/** The plugin looks for the first file before it copies anything. */
const NO_WAL = /([0-9A-F]{24}): WAL not found/;
/** These say something of the volume. */
const NO_SPACE = /No space left on device|Disk quota exceeded/;

/**
 * @returns `damage`: how the archive is damaged, as PostgreSQL or the plugin says it; null: it is
 *   not said. `text`: the last line, which is not for users
 */
export function damageIn(output: string): Readonly<{ damage: string | null; text: string }> {
  const lines = output.split('\n').filter((line) => line.trim() !== '');
  const text = (lines.at(-1) ?? 'no output').slice(0, MAX_LENGTH);
  if (NO_SPACE.test(output)) return { damage: null, text: 'its volume is full' };
  const missing = NO_WAL.exec(output)?.[1];
  const fatal = lines.map(fatalIn).findLast((found) => found !== null) ?? null;
  const damage = missing === undefined ? fatal : `the archive has no WAL file ${missing}`;
  return { damage: damage === null ? null : shown(damage), text };
}

const shown = (text: string): string =>
  text
    .replaceAll(/[\p{Cc}\p{Cf}]+/gu, ' ')
    .trim()
    .slice(0, MAX_LENGTH);

/** The message of a line by which PostgreSQL ends; null: it is another one. */
function fatalIn(line: string): string | null {
  const parsed = parse(line);
  if (parsed === null) return plainFatal(line);
  const { msg = '', record } = parsed;
  const isFatal = record?.error_severity === 'FATAL' || record?.error_severity === 'PANIC';
  return isFatal ? unlessRefused(record.message ?? msg) : plainFatal(msg);
}

const plainFatal = (line: string): string | null =>
  unlessRefused(/\b(?:FATAL|PANIC): +(.*)$/s.exec(line)?.[1] ?? null);

/** A session that came too early or too late is refused by FATAL, too. */
const unlessRefused = (message: string | null): string | null =>
  message?.startsWith('the database system is ') === true ? null : message;

function parse(line: string) {
  if (!line.startsWith('{')) return null;
  try {
    const value: unknown = JSON.parse(line);
    return Value.Check(LINE, value) ? value : null;
  } catch {
    return null;
  }
}
