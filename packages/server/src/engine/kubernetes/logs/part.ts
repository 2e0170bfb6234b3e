/** Parts of kept logs: compressed JSON lines, the oldest first. */
import { setImmediate } from 'node:timers/promises';
import { promisify } from 'node:util';
import { deflateRaw, inflateRaw } from 'node:zlib';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import type { KeptPart } from '../../kept-logs.ts';
import type { LogLine } from './lines.ts';

/** Kept of one server at a time, as JSON. The last line may go beyond it: 64 KiB, escaped. */
const PART_BYTES = 512 * 1024;
const MAX_BYTES = 1024 * 1024;

/** Made between two turns of the event loop. */
const LINES_PER_TURN = 500;

const deflate = promisify(deflateRaw);
const inflate = promisify(inflateRaw);

const KEPT_LINE = Type.Tuple([
  Type.String({ pattern: '^[0-9]{19}$' }),
  Type.Object({ timestamp: Type.String(), severity: Type.String(), message: Type.String() }),
]);

/** A part of the newest lines, as many as it holds; null: there are none. */
export async function pack(
  newestFirst: Iterable<LogLine>,
): Promise<(Omit<KeptPart, 'id' | 'pod'> & Readonly<{ lines: Buffer }>) | null> {
  const texts: string[] = [];
  let [from, until, bytes] = ['', '', 0];
  for (const { at, entry } of newestFirst) {
    const text = JSON.stringify([at, entry]);
    texts.push(text);
    until ||= at;
    from = at;
    bytes += Buffer.byteLength(text);
    if (bytes >= PART_BYTES) break;
    if (texts.length % LINES_PER_TURN === 0) await setImmediate();
  }
  if (texts.length === 0) return null;
  return { from, until, lines: await deflate(texts.toReversed().join('\n')) };
}

/** @returns the lines, newest first, and their bytes; a part that cannot be read has no lines */
export async function unpack(
  lines: Buffer,
): Promise<Readonly<{ lines: readonly LogLine[]; bytes: number }>> {
  try {
    const text = await inflate(lines, { maxOutputLength: MAX_BYTES });
    const read = text.toString('utf8').split('\n').flatMap(lineIn);
    return { lines: read.toReversed(), bytes: text.length };
  } catch {
    return { lines: [], bytes: MAX_BYTES };
  }
}

function lineIn(text: string): LogLine[] {
  const parsed: unknown = JSON.parse(text);
  if (!Value.Check(KEPT_LINE, parsed)) return [];
  const [at, entry] = parsed;
  return [{ at, entry }];
}
