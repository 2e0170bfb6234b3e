/**
 * Reading the lines of a server log from its end to its begin: linear in time, bounded in memory,
 * whatever a tenant wrote.
 */
import type { FileHandle } from 'node:fs/promises';
import { openFileOrNull } from '../host/service-files.ts';

/**
 * A longer line is cut. Its begin is kept, which holds the time, the severity and the start of the
 * message.
 */
export const MAX_LINE_BYTES = 64 * 1024;
/**
 * Read and parsed between two turns of the event loop; larger than a line, so that each chunk makes
 * progress.
 */
export const CHUNK_BYTES = 128 * 1024;

/**
 * `bytes`: the length of the whole line, as far as it lies before the position where reading began.
 */
export type LogLine = { line: Buffer; startByte: number; bytes: number; isCut: boolean };

/** The bytes that one call may still read; used up by {@link linesBackwards}. */
export type ReadBudget = { bytes: number };

/**
 * The lines of a file that end before a byte, last first. Stops where the budget is used up, inside
 * a line if need be.
 *
 * @param before a position where an earlier call stopped; null: the end of the file
 * @returns where the next call begins; 0: everything was read
 * @throws the reason of `signal` once it is aborted
 */
export async function* linesBackwards(
  path: string,
  before: number | null,
  budget: ReadBudget,
  signal?: AbortSignal,
): AsyncGenerator<LogLine, number> {
  const file = await openFileOrNull(path);
  if (file === null) return 0;
  try {
    const { size } = await file.stat();
    let end = Math.min(before ?? size, size);
    let lineEnd = end;
    // An earlier call may have stopped inside a line: only the begin of that line is left.
    let isCut = before !== null && before < size && !(await isLineEnd(file, before));
    // The begin of the line that ends at `lineEnd`, as far as it is read: the bytes from `end` on.
    let text: Buffer = Buffer.alloc(0);
    while (end > 0 && budget.bytes > 0) {
      signal?.throwIfAborted();
      const start = Math.max(0, end - CHUNK_BYTES);
      const chunk = Buffer.alloc(end - start);
      await file.read(chunk, 0, chunk.length, start);
      budget.bytes -= chunk.length;
      end = start;
      text = Buffer.concat([chunk, text]);
      for (
        let newline = newlineBeforeLast(text);
        newline !== -1;
        newline = newlineBeforeLast(text)
      ) {
        const startByte = start + newline + 1;
        yield cutLine(text.subarray(newline + 1), startByte, lineEnd, isCut);
        [lineEnd, isCut] = [startByte, false];
        text = text.subarray(0, newline + 1);
      }
      // Kept no longer than what is shown: the next chunk copies it again.
      isCut ||= text.length > MAX_LINE_BYTES;
      text = text.subarray(0, MAX_LINE_BYTES);
    }
    if (end === 0 && text.length > 0) yield cutLine(text, 0, lineEnd, isCut);
    if (end === 0) return 0;
    // The next call reads a short line again, and of a long one what is shown of it at most.
    return Math.min(lineEnd, end + MAX_LINE_BYTES);
  } finally {
    await file.close();
  }
}

function cutLine(text: Buffer, startByte: number, endByte: number, wasCut: boolean): LogLine {
  const isCut = wasCut || text.length > MAX_LINE_BYTES;
  return {
    line: isCut ? text.subarray(0, MAX_LINE_BYTES) : text,
    startByte,
    bytes: endByte - startByte,
    isCut,
  };
}

/**
 * The newline that ends the line before the last one of a text; -1: the text is (part of) one line.
 */
function newlineBeforeLast(text: Buffer): number {
  return text.length < 2 ? -1 : text.lastIndexOf(10, text.length - 2);
}

async function isLineEnd(file: FileHandle, position: number): Promise<boolean> {
  if (position === 0) return true;
  const last = Buffer.alloc(1);
  await file.read(last, 0, 1, position - 1);
  return last[0] === 10;
}
