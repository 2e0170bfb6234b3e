import { spawn } from 'node:child_process';
import { environmentOfPrograms } from './environment.ts';

export type RunOptions = {
  uid?: number;
  gid?: number;
  env?: NodeJS.ProcessEnv;
  deadlineMs?: number;
  cwd?: string;
  /** An open file for its standard input; none: nothing. */
  input?: number;
  /** Called with its process id as soon as it runs. */
  started?: (pid: number) => void;
};

/** A program that failed; the message holds the program, how it ended and the end of its output. */
export class RunError extends Error {}

/**
 * Runs a program to its end, without a shell.
 *
 * @returns its standard output
 * @throws RunError when it cannot be started, ends with a code other than 0, or is still running at
 * the deadline (default 60 s)
 */
export async function run(
  program: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<string> {
  const {
    deadlineMs = 60_000,
    input,
    started,
    ...spawnOptions
  } = { env: environmentOfPrograms(process.env), ...options };
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: '/',
      ...spawnOptions,
      stdio: [input ?? 'ignore', 'pipe', 'pipe'],
    });
    if (child.pid !== undefined) started?.(child.pid);
    const out: string[] = [];
    const err: string[] = [];
    const timer = setTimeout(() => child.kill('SIGKILL'), deadlineMs);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => out.push(text));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => err.push(text));
    child.on('error', (error) => {
      clearTimeout(timer);
      reject(new RunError(`${program}: ${error.message}`));
    });
    child.on('close', (code, signalName) => {
      clearTimeout(timer);
      if (code === 0) resolve(out.join(''));
      else
        reject(
          new RunError(
            `${program} ended with ${signalName ?? `code ${code}`}: ` +
              lastLines(err.join('') || out.join('')),
          ),
        );
    });
  });
}

/** The end of a program's output, on one line. */
export function lastLines(text: string): string {
  return text.trim().split('\n').slice(-3).join(' | ').slice(-600);
}
