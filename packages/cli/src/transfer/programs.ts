/** PostgreSQL's own programs on this machine: pg_dump, pg_restore, psql. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { PassThrough, type Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { Failure } from '../exit.ts';
import { shortMessageOf, oneLine } from './steps.ts';

export type ProgramName = 'pg_dump' | 'pg_restore' | 'psql';

/** The directories of the packages of Debian; PATH may have more. */
const PACKAGES = '/usr/lib/postgresql';

/** The part of a program's stderr that is kept: the first error is the cause. */
const KEPT_CHARACTERS = 4000;

/** A program that ended with an error. */
export class ProgramFailure extends Failure {
  /** The last that it printed. */
  readonly lastWords: string;

  constructor(message: string, lastWords: string) {
    super(message);
    this.lastWords = lastWords;
  }
}

/**
 * The program of the lowest version that knows servers of this version: a newer one may write what
 * an older server does not know.
 *
 * @param major of the server, or of the program that wrote a dump
 * @throws Failure unavailableHere, with the package that has the program
 */
export async function findProgram(name: ProgramName, major: number): Promise<string> {
  const known = await listPrograms(name);
  const chosen = known.find((one) => one.major >= major);
  if (chosen !== undefined) return chosen.path;
  const others = [...new Set(known.map((one) => one.major))].join(', ');
  throw new Failure(
    `this needs ${name} of PostgreSQL ${major} or newer on this machine; ` +
      `${others === '' ? 'there is none' : `there is only that of ${others}`}: apt-get ` +
      `install postgresql-client-${major} (Debian 13 has 17; the repository ` +
      'apt.postgresql.org has all versions)',
    'unavailableHere',
  );
}

/** The program of the newest version. @throws Failure unavailableHere */
export async function findNewest(name: ProgramName): Promise<string> {
  const newest = (await listPrograms(name)).at(-1);
  if (newest !== undefined) return newest.path;
  throw new Failure(
    `this needs ${name} on this machine: apt-get install postgresql-client`,
    'unavailableHere',
  );
}

/** All of a name, the oldest version first. */
async function listPrograms(name: ProgramName): Promise<{ path: string; major: number }[]> {
  const installed = await readdir(PACKAGES).catch(() => []);
  const folders = [
    ...installed.map((version) => join(PACKAGES, version, 'bin')),
    ...(process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== ''),
  ];
  const found = await Promise.all(folders.map((folder) => versionOf(join(folder, name))));
  return found.flatMap((one) => one ?? []).toSorted((a, b) => a.major - b.major);
}

async function versionOf(path: string): Promise<{ path: string; major: number } | null> {
  try {
    const { stdout } = await promisify(execFile)(path, ['--version']);
    const major = Number(/ (\d+)/.exec(stdout)?.[1]);
    return Number.isInteger(major) ? { path, major } : null;
  } catch {
    return null;
  }
}

export type Run = {
  /** The environment beside PATH: how to connect. */
  variables?: Readonly<Record<string, string>>;
  input?: Readable;
  output?: Writable;
};

/** Runs a program and gives its output. @throws ProgramFailure at the end, if it failed */
export async function* outputOf(
  path: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): AsyncGenerator<Buffer> {
  const output = new PassThrough();
  const running = runProgram(path, args, { variables, output });
  // A program that does not start writes nothing, and its output would not end.
  running.catch(() => output.end());
  yield* output;
  await running;
}

/**
 * Runs a program to its end.
 *
 * @returns the last that it printed to stderr
 * @throws ProgramFailure with the first lines that it printed
 */
export async function runProgram(
  path: string,
  args: readonly string[],
  { variables = {}, input, output }: Run = {},
): Promise<string> {
  const child = spawn(path, args, {
    env: {
      PATH: process.env['PATH'] ?? '',
      HOME: process.env['HOME'] ?? '',
      ...passed(),
      ...variables,
    },
    stdio: [
      input === undefined ? 'ignore' : 'pipe',
      output === undefined ? 'ignore' : 'pipe',
      'pipe',
    ],
  });
  let [stderr, lastWords] = ['', ''];
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    if (stderr.length < KEPT_CHARACTERS) stderr += text;
    lastWords = (lastWords + text).slice(-KEPT_CHARACTERS);
  });
  const ended = once(child, 'close');
  const streams: Promise<unknown>[] = [];
  // A program that ends early closes its input; its exit code says why.
  if (input !== undefined && child.stdin !== null)
    streams.push(pipeline(input, child.stdin).catch((error: unknown) => ignorePipe(error)));
  if (output !== undefined && child.stdout !== null)
    streams.push(pipeline(child.stdout, output, { end: output !== process.stdout }));
  try {
    await Promise.all([ended, ...streams]);
  } catch (error) {
    child.kill();
    throw new Failure(`${path}: ${shortMessageOf(error)}`);
  }
  if (child.exitCode !== 0)
    throw new ProgramFailure(
      `${path} ended with ${child.exitCode ?? child.signalCode}: ${oneLine(stderr).slice(0, 1500)}`,
      lastWords,
    );
  return lastWords;
}

function ignorePipe(error: unknown): void {
  if (error instanceof Error && 'code' in error && error.code === 'EPIPE') return;
  throw error;
}

/** Variables of libpq that find a password which is not in the URL. */
function passed(): Record<string, string> {
  const names = ['PGPASSWORD', 'PGPASSFILE'];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
