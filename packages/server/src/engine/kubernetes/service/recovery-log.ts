/** The reason of a recovery that failed, in the output of its pod. Names of a tenant are in it. */
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

/**
 * The last FATAL message of PostgreSQL, or else the last error of CloudNativePG, or else the last
 * line.
 */
export function lastError(output: string): string {
  const lines = output.split('\n').filter((line) => line.trim() !== '');
  const parsed = lines.map(readLine);
  const found =
    parsed.findLast((line) => line.fatal !== null)?.fatal ??
    parsed.findLast((line) => line.error !== null)?.error ??
    lines.at(-1) ??
    'its pod has no output';
  return found
    .replaceAll(/[\p{Cc}\p{Cf}]+/gu, ' ')
    .trim()
    .slice(0, MAX_LENGTH);
}

type Reason = Readonly<{ fatal: string | null; error: string | null }>;

function readLine(line: string): Reason {
  const [, plain = null] = /\b((?:FATAL|PANIC): .*)$/.exec(line) ?? [];
  const parsed = parse(line);
  if (parsed === null) return { fatal: plain, error: null };
  const { msg = '', error = null, record } = parsed;
  const isFatal = record?.error_severity === 'FATAL' || record?.error_severity === 'PANIC';
  const [, inMessage = null] = /\b((?:FATAL|PANIC): .*)$/s.exec(msg) ?? [];
  return {
    fatal: isFatal ? (record.message ?? msg) : inMessage,
    error: error === null ? null : `${msg}: ${error}`,
  };
}

function parse(line: string) {
  if (!line.startsWith('{')) return null;
  try {
    const value: unknown = JSON.parse(line);
    return Value.Check(LINE, value) ? value : null;
  } catch {
    return null;
  }
}
