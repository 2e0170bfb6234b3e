/**
 * Runs the steps of a gate one after the other, nothing beside. The output of a step is shown live
 * and kept in a file. At the end there are the failures and a table; a signal ends everything.
 */
import { spawn, spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, readSync, rmSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { closingLine, failuresIn, passedAloneIn, tableOf, totalsIn, type Row } from './report.ts';

/** `command` is of a shell. */
export type Step = Readonly<{ name: string; minutes: number; command: string }>;

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SHOW_EVERY_MS = 200;
/** Tests that are ended remove what they made. */
const ENDING_MS = 30_000;
const END_LINES = 120;

const say = (text: string): void => void process.stdout.write(`${text}\n`);

class Interrupted extends Error {}

export class Steps {
  /** Everything that the gate makes is in here. */
  readonly scratch = mkdtempSync(`${process.env['TMPDIR'] ?? '/var/tmp'}/howdah-gate.`);
  readonly rows: Row[] = [];
  readonly #env = { ...process.env, CI: 'true', DEBIAN13_ROOT: `${this.scratch}/debian13` };
  /** Lines that the end of the output has before the table. */
  readonly notes: string[] = [];
  readonly #redLogs = new Map<string, string>();
  /** The process group of the command that runs. */
  #group: number | undefined;
  #ending: Promise<void> | null = null;
  #signal: NodeJS.Signals | null = null;

  /** Runs a gate, removes everything of it, and sets the exit code. */
  static async run(gate: (steps: Steps) => Promise<void>): Promise<void> {
    const steps = new Steps();
    for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM'] as const)
      process.on(signal, () => steps.#stop(signal));
    // A reader that has gone, as at the end of a terminal.
    process.stdout.on('error', () => steps.#stop('SIGHUP'));
    try {
      await gate(steps);
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error;
    } finally {
      await steps.#remove();
    }
    steps.#report();
  }

  /** Runs a command. @returns its row, which the table has */
  async step({ name, minutes, command }: Step, directory = ROOT): Promise<Row> {
    const log = `${this.scratch}/${this.rows.length}.log`;
    const beganMs = performance.now();
    say(`\n######## ${name}: ${command}`);
    const status = await this.#execute(command, directory, minutes, log);
    this.#throwIfStopped();
    const text = readFileSync(log, 'utf8');
    const isRed = status !== 0;
    const row = {
      name,
      tests: totalsIn(text),
      seconds: (performance.now() - beganMs) / 1000,
      result: isRed ? `FAILED (${status})` : 'ok',
      isRed,
    };
    this.rows.push(row);
    this.notes.push(...passedAloneIn(text));
    if (isRed) this.#redLogs.set(name, text);
    return row;
  }

  /** Adds a row of something that need not run. */
  skip(name: string, result: string): void {
    this.rows.push({ name, tests: null, seconds: null, result, isRed: false });
  }

  /** @returns the exit code, the signal that ended the command, or why there is neither */
  async #execute(
    command: string,
    cwd: string,
    minutes: number,
    log: string,
  ): Promise<number | string> {
    this.#throwIfStopped();
    // A file, not a pipe: a process that outlives the command cannot hold it open.
    const output = openSync(log, 'w');
    const stdio = ['ignore', output, output] as const;
    // Detached: a process group, which a signal ends as a whole.
    const child = spawn('sh', ['-c', command], {
      cwd,
      env: this.#env,
      stdio: [...stdio],
      detached: true,
    });
    closeSync(output);
    this.#group = child.pid;
    const shown = follow(log);
    let lateText: string | null = null;
    const deadline = setTimeout(() => {
      lateText = `ended after ${minutes} minutes`;
      this.#endGroup();
    }, minutes * 60_000);
    const status = await new Promise<number | string>((resolve) => {
      child.once('error', ({ message }) => resolve(message));
      child.once('exit', (code, signal) => resolve(code ?? signal ?? 'unknown'));
    });
    clearTimeout(deadline);
    await this.#ending;
    [this.#group, this.#ending] = [undefined, null];
    shown.end();
    return lateText ?? status;
  }

  #endGroup(): void {
    if (this.#group !== undefined) this.#ending ??= endGroup(this.#group);
  }

  #stop(signal: NodeJS.Signals): void {
    if (this.#signal !== null) return;
    this.#signal = signal;
    say(`\n${signal}: ending what runs`);
    this.#endGroup();
  }

  #throwIfStopped(): void {
    if (this.#signal !== null) throw new Interrupted();
  }

  async #remove(): Promise<void> {
    const script = `${ROOT}tools/debian13/run`;
    const remove = (): number | null =>
      spawnSync(script, ['--remove'], { env: this.#env, stdio: 'inherit' }).status;
    // Something killed may still write for a moment.
    for (let tries = 0; process.getuid?.() === 0 && tries < 3 && remove() !== 0; tries += 1)
      await sleep(2000);
    rmSync(this.scratch, { recursive: true, force: true, maxRetries: 3 });
  }

  #report(): void {
    for (const [name, log] of this.#redLogs) {
      const lines = log.trimEnd().split('\n').slice(-END_LINES);
      say(`\n######## The end of: ${name}\n${lines.join('\n')}`);
    }
    // A reader of the last lines alone sees which tests failed, in each of the steps.
    for (const [name, log] of this.#redLogs)
      say(`\n######## Failed in: ${name}\n${failuresIn(log).join('\n')}`);
    const seconds = this.rows.reduce((sum, row) => sum + (row.seconds ?? 0), 0);
    say(`\n${[...this.notes, '', ...tableOf(this.rows)].join('\n')}`);
    say(`${Math.round(seconds)} s altogether\n`);
    if (this.#signal !== null) {
      say(`interrupted by ${this.#signal}`);
      process.exitCode = 128 + constants.signals[this.#signal];
      return;
    }
    say(closingLine(this.rows));
    process.exitCode = this.rows.some(({ isRed }) => isRed) ? 1 : 0;
  }
}

/** Asks all processes of a group to end, and kills those that do not. */
async function endGroup(group: number): Promise<void> {
  signalGroup(group, 'SIGTERM');
  const deadlineMs = performance.now() + ENDING_MS;
  while (signalGroup(group, 0) && performance.now() < deadlineMs) await sleep(100);
  signalGroup(group, 'SIGKILL');
}

/** @returns whether the process group exists */
function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-group, signal);
  } catch {
    return false;
  }
}

/** Shows what is written to a file, until `end`. */
function follow(path: string): { end: () => void } {
  const file = openSync(path, 'r');
  const buffer = Buffer.alloc(65_536);
  const show = (): void => {
    for (let bytes = readSync(file, buffer); bytes > 0; bytes = readSync(file, buffer))
      process.stdout.write(Buffer.from(buffer.subarray(0, bytes)));
  };
  const timer = setInterval(show, SHOW_EVERY_MS);
  return {
    end: () => {
      clearInterval(timer);
      show();
      closeSync(file);
    },
  };
}
