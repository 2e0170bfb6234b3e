/** Runs a program beside the servers of a service to its end, as the user of the service. */
import { spawn } from 'node:child_process';
import { lastLines, RunError } from '../../../lib/run.ts';
import { privileges } from './detached-program.ts';
import type { Owner } from './users.ts';
import { encloseServer, openMounts, type Encloser, type View } from './sandbox.ts';

/** The end of what a program prints as errors. */
const ERRORS_MAX_CHARACTERS = 16_384;
const MIB = 1024 ** 2;

export type Enclosed = {
  readonly machine: Encloser;
  /** The user that it runs as; null: our own. */
  readonly owner: Owner | null;
  /** The files that it sees; its installation is that of the program. */
  readonly view: Pick<View, 'program' | 'own' | 'others' | 'config'>;
  readonly deadlineMs: number;
  /** The program's standard input; none: nothing. */
  readonly input?: string;
  /** The size of its /dev/shm; by default a mebibyte. */
  readonly sharedMemoryBytes?: number;
};

/**
 * Runs a command in namespaces of its own, as a server of the service runs in them.
 *
 * @param name the program as an error names it
 * @returns its standard output
 * @throws RunError with the end of its errors when it fails or has not ended at the deadline
 */
export async function runEnclosed(
  { machine, owner, view, deadlineMs, input, sharedMemoryBytes = MIB }: Enclosed,
  name: string,
  command: readonly string[],
): Promise<string> {
  const enclosure = await encloseServer(machine, { ...view, sharedMemoryBytes });
  const mounts = enclosure.mounts === null ? null : await openMounts(enclosure.mounts);
  const [first = '/bin/sh', ...words] = [...enclosure.within, ...privileges(owner), ...command];
  try {
    const child = spawn(first, words, {
      cwd: '/',
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C.UTF-8' },
      stdio: [
        input === undefined ? 'ignore' : 'pipe',
        'pipe',
        'pipe',
        ...(mounts === null ? [] : [mounts.fd]),
      ],
    });
    // A program that ends early does not read all of it; its end says why.
    child.stdin?.on('error', () => undefined).end(input);
    const out: string[] = [];
    let errors = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => out.push(text));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      errors = (errors + text).slice(-ERRORS_MAX_CHARACTERS);
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), deadlineMs);
    const end = await new Promise<string | null>((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (code, signal) => resolve(code === 0 ? null : (signal ?? `code ${code}`)));
    }).finally(() => clearTimeout(timer));
    if (end === null) return out.join('');
    throw new RunError(`${name} ended with ${end}: ${firstError(errors)}`);
  } finally {
    await mounts?.close();
  }
}

/** The first error that a program of PostgreSQL prints; its details follow on other lines. */
function firstError(text: string): string {
  return /^.*\b(?:error|fatal): .*$/im.exec(text)?.[0] ?? lastLines(text);
}
