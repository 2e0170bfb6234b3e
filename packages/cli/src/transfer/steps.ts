/** The steps of an import or export, printed to stderr with their times and their progress. */
import { messageOf } from '@howdah/contract/thrown';
import { Failure } from '../exit.ts';
import { duration, endLive, note, paintNote, showLive } from '../output.ts';

/** Replaces the progress of the running step: `3 of 12 tables, 40 MB`. */
export type Report = (progress: string) => void;

const LIVE_MS = 200;
/** Without a terminal, a long step says at this interval how far it is. */
const PLAIN_MS = 30_000;

/** Runs a step, and prints it when it ends. */
export async function step<T>(name: string, work: (report: Report) => Promise<T>): Promise<T> {
  const begunMs = performance.now();
  const isLive = process.stderr.isTTY;
  let progress = '';
  const text = (): string => {
    const took = duration(performance.now() - begunMs);
    return `${name} ${paintNote.dim(progress === '' ? took : `${took}, ${oneLine(progress)}`)}`;
  };
  const draw = (): void => {
    if (isLive) {
      endLive();
      showLive(`${paintNote.cyan('…')} ${text()}`);
    } else note(`… ${text()}`);
  };
  const timer = setInterval(draw, isLive ? LIVE_MS : PLAIN_MS);
  const end = (mark: string): void => {
    clearInterval(timer);
    if (isLive) endLive();
    note(`${mark} ${text()}`);
  };
  try {
    const result = await work((now) => (progress = now));
    end(paintNote.green('✓'));
    return result;
  } catch (error) {
    end(paintNote.red('✗'));
    throw error;
  }
}

/** A text of others on one line, so that it cannot pass for lines of ours. */
export const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ').trim();

/** The message of an error of a server or a program, on one line of at most 500 characters. */
export function shortMessageOf(error: unknown): string {
  const shown = oneLine(messageOf(error));
  return shown.length > 500 ? `${shown.slice(0, 499)}…` : shown;
}

/** Names in a message: the first ten, and how many more there are. */
export function listed(names: readonly string[]): string {
  const shown = names.slice(0, 10).map(oneLine).join(', ');
  return names.length > 10 ? `${shown} and ${names.length - 10} more` : shown;
}

/** A size for people. */
export function sizeOf(bytes: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), units.length - 1);
  const value = bytes / 1000 ** power;
  return `${power === 0 ? value : value.toFixed(1)} ${units[power]}`;
}

/** The one row of an answer. @throws Failure */
export function only<T>(rows: readonly T[], what: string): T {
  const [row] = rows;
  if (row === undefined) throw new Failure(`${what}: the server sent no row`);
  return row;
}
