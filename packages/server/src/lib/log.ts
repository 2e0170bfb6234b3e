/**
 * The control log: JSON lines in `HOME/logs/control.log`.
 *
 * A disk without space must not end the control plane: lines that cannot be written are dropped and
 * counted, and the count is written once there is space again. A file that is too large is renamed
 * to `control.log.1`, also while it is written. A program that has moved the file away asks for
 * another one by SIGHUP.
 */
import { closeSync, mkdirSync, openSync, renameSync, statSync, write, writeSync } from 'node:fs';
import { join } from 'node:path';
import { pino, type Logger } from 'pino';

/** The part of the control log that modules use. */
export type Log = {
  info: (facts: object, message: string) => void;
  warn: (facts: object, message: string) => void;
  error: (facts: object, message: string) => void;
};

/** For work whose errors the caller shows itself. */
export const QUIET: Log = {
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

/** The largest size of the file; with the renamed one the logs take twice as much. */
const ROTATE_BYTES = 20e6;
/** Lines that wait for the disk; more are dropped. */
const WAITING_BYTES = 4e6;

/** @param rotateBytes the size from which the file is renamed */
export function openLog(
  home: string,
  rotateBytes = ROTATE_BYTES,
): { log: Logger; path: string; reopen: () => void } {
  const directory = join(home, 'logs');
  const path = join(directory, 'control.log');
  mkdirSync(home, { recursive: true, mode: 0o755 });
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const file = createLogFile(path, rotateBytes);
  process.once('exit', file.flush);
  return { log: pino(OPTIONS, file), path, reopen: file.reopen };
}

const OPTIONS = { redact: ['req.headers.authorization', '*.first_verifier', '*.password'] };

/** A control log on standard output, where Kubernetes keeps it. */
export const openOutputLog = (): Logger => pino(OPTIONS);

/** Writes to a file descriptor as fs.write does; replaced in tests. */
export type WriteFile = (
  fd: number,
  text: string,
  done: (error: Error | null, written: number) => void,
) => void;

/** A destination for pino that never throws and never emits an error. */
export function createLogFile(
  path: string,
  rotateBytes: number,
  writeFile: WriteFile = (fd, text, done) => write(fd, text, done),
) {
  let waiting: string[] = [];
  let waitingBytes = 0;
  let dropped = 0;
  let writing = false;
  const file = createRotatedFile(path, rotateBytes);

  const takeWaiting = (): { text: string; lines: number } => {
    const lines = dropped === 0 ? waiting : [droppedLine(dropped), ...waiting];
    const taken = { text: lines.join(''), lines: waiting.length + dropped };
    waiting = [];
    waitingBytes = 0;
    dropped = 0;
    return taken;
  };

  const pump = (): void => {
    if (writing || waiting.length === 0) return;
    const { text, lines } = takeWaiting();
    const to = file.open();
    if (to === null) {
      dropped += lines;
      return;
    }
    const bytes = Buffer.byteLength(text);
    writing = true;
    file.grow(bytes);
    writeFile(to, text, (error, written) => {
      writing = false;
      // A part of a line may be in the file: the next write begins with a newline.
      if (error !== null || written < bytes) dropped += lines;
      pump();
    });
  };

  return {
    write: (line: string): void => {
      if (waitingBytes > WAITING_BYTES) {
        dropped += 1;
        return;
      }
      waiting.push(line);
      waitingBytes += Buffer.byteLength(line);
      pump();
    },
    /** Has the next line written to the file that has the path then: ours was moved away. */
    reopen: file.reopen,
    /** Writes waiting lines at once: before the process ends. */
    flush: (): void => {
      const to = waiting.length === 0 ? null : file.open();
      if (to === null) return;
      try {
        file.grow(writeSync(to, takeWaiting().text));
      } catch {
        // There is no space, and nobody left to report it to.
      }
    },
  };
}

/** A file that is renamed once it is too large, and opened again once it was moved away. */
function createRotatedFile(path: string, rotateBytes: number) {
  let fd: number | null = null;
  let size = 0;
  let isMoved = false;
  return {
    /** @returns null: the file cannot be opened now */
    open: (): number | null => {
      if (fd !== null && size < rotateBytes && !isMoved) return fd;
      try {
        if (fd !== null) closeSync(fd);
        fd = null;
        isMoved = false;
        size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
        if (size >= rotateBytes) {
          renameSync(path, `${path}.1`);
          size = 0;
        }
        fd = openSync(path, 'a', 0o600);
      } catch {
        // No file is written; the lines are counted as dropped and the next line tries again.
      }
      return fd;
    },
    grow: (bytes: number): void => {
      size += bytes;
    },
    reopen: (): void => {
      isMoved = true;
    },
  };
}

/** The first newline ends a line of which only a part was written. */
function droppedLine(lines: number): string {
  const msg = 'lines of this log were dropped: they could not be written';
  const facts = { level: 40, time: Date.now(), pid: process.pid, dropped: lines, msg };
  return `\n${JSON.stringify(facts)}\n`;
}
