/** Objects of ours in a repository, below `howdah/`, encrypted like everything in it. */
import { quotedWord } from '@howdah/contract/shell';
import { randomBytes } from 'node:crypto';
import { chown, readdir, stat } from 'node:fs/promises';
import { noneOf } from '../lib/processes.ts';
import { runPgBackRest } from './run.ts';
import { RepositoryProblem, type PgBackRest, type Repository } from './repository.ts';

const DIRECTORY = 'howdah';
/** A known text: reading it shows whether the passphrase is the repository's. */
const [KNOWN_NAME, KNOWN_TEXT] = ['passphrase', 'This repository has this passphrase.\n'];
/** repo-get ends with this code when there is no such object. */
const MISSING = 1;
/** Callers wait for the answer of the API. */
const DEADLINE_MS = 60_000;

/**
 * Finds out whether a repository can be used, by writing, reading and removing an object. Nothing
 * is left in it.
 *
 * @throws RepositoryProblem
 */
export async function checkRepository(
  program: PgBackRest,
  repository: Repository,
  signal?: AbortSignal,
): Promise<void> {
  await prepareDirectory(program, repository);
  const known = await get(program, repository, KNOWN_NAME, signal);
  if (known !== null && known.toString('utf8') !== KNOWN_TEXT)
    throw new RepositoryProblem(
      `the repository ${repository.name} has another passphrase; use the one of its recovery kit ` +
        '(howdah repo add … --kit FILE)',
    );
  const [name, contents] = [`check-${randomBytes(8).toString('hex')}`, randomBytes(64)];
  await put(program, repository, name, contents, signal);
  const found = await get(program, repository, name, signal);
  await remove(program, repository, name, signal);
  if (found === null || !found.equals(contents))
    throw new RepositoryProblem(
      `the repository ${repository.name} loses or changes what is written to it; use another one`,
    );
}

/** Notes which passphrase a repository has, in one that has none yet. @throws RepositoryProblem */
export async function markPassphrase(program: PgBackRest, repository: Repository): Promise<void> {
  if ((await get(program, repository, KNOWN_NAME)) === null)
    await put(program, repository, KNOWN_NAME, Buffer.from(KNOWN_TEXT));
}

/**
 * Gives an empty directory on this machine to pgBackRest. A missing one is not made: its
 * disk may not be mounted, and backups would fill the disk that they are to survive.
 */
async function prepareDirectory({ user }: PgBackRest, { storage }: Repository): Promise<void> {
  if (storage.type !== 'path') return;
  const { directory } = storage;
  const found = await stat(directory).catch(noneOf('ENOENT', 'ENOTDIR'));
  if (found === null)
    throw new RepositoryProblem(
      `the directory ${directory} does not exist: ` +
        `mount its disk, or make it (mkdir ${quotedWord(directory)})`,
    );
  if (user === null || found.uid === user.uid) return;
  const entries = (await readdir(directory).catch(noneOf('ENOTDIR'))) ?? [];
  if (entries.filter((entry) => entry !== 'lost+found').length === 0)
    await chown(directory, user.uid, user.gid);
}

/** @param name a path below `howdah/`: letters, digits, `.`, `_`, `-`, and `/` between them */
export async function putObject(
  program: PgBackRest,
  repository: Repository,
  name: string,
  contents: Buffer,
): Promise<void> {
  await put(program, repository, name, contents);
}

/**
 * @param maxBytes the most that it may have; more is a problem of the repository
 * @returns null: there is no such object
 */
export async function getObject(
  program: PgBackRest,
  repository: Repository,
  name: string,
  maxBytes = Infinity,
): Promise<Buffer | null> {
  return get(program, repository, name, undefined, maxBytes);
}

/** The names of all objects below a directory; `''`: of all. */
export async function listObjects(
  program: PgBackRest,
  repository: Repository,
  prefix: string,
): Promise<string[]> {
  const directory = prefix === '' ? DIRECTORY : pathOf(prefix);
  const names = await listFiles(program, repository, directory);
  return names.map((name) => (prefix === '' ? name : `${prefix}/${name}`));
}

/** A missing object is no error. */
export async function removeObject(
  program: PgBackRest,
  repository: Repository,
  name: string,
): Promise<void> {
  await remove(program, repository, name);
}

/** The files below a directory of a repository, relative to it, sorted. */
export async function listFiles(
  program: PgBackRest,
  repository: Repository,
  directory: string,
): Promise<string[]> {
  const { stdout } = await runPgBackRest(program, repository, {
    command: ['repo-ls', '--recurse', '--output=json', directory],
    asked: 'be listed',
    deadlineMs: DEADLINE_MS,
  });
  const parsed: unknown = JSON.parse(stdout.toString('utf8'));
  if (typeof parsed !== 'object' || parsed === null) return [];
  return Object.entries(parsed)
    .filter(([, entry]: [string, unknown]) => isFile(entry))
    .map(([name]) => name)
    .toSorted();
}

/** The directories in a directory of a repository, sorted; a missing one has none. */
export async function listDirectories(
  program: PgBackRest,
  repository: Repository,
  directory: string,
): Promise<string[]> {
  const { stdout } = await runPgBackRest(program, repository, {
    command: ['repo-ls', '--output=json', directory],
    asked: 'be listed',
    deadlineMs: DEADLINE_MS,
  });
  const parsed: unknown = JSON.parse(stdout.toString('utf8'));
  return Object.entries(Object(parsed))
    .filter(([name, entry]) => name !== '.' && typeOf(entry) === 'path')
    .map(([name]) => name)
    .toSorted();
}

const typeOf = (entry: unknown): unknown =>
  typeof entry === 'object' && entry !== null ? Reflect.get(entry, 'type') : undefined;

const isFile = (entry: unknown): boolean => typeOf(entry) === 'file';

/** Removes a directory of a repository with all that is in it. A missing one is no error. */
export async function removeDirectory(
  program: PgBackRest,
  repository: Repository,
  directory: string,
): Promise<void> {
  await runPgBackRest(program, repository, {
    command: ['repo-rm', '--recurse', directory],
    asked: 'remove backups',
    isBackground: true,
  });
}

function pathOf(name: string): string {
  if (!/^[\w-][\w.-]*(\/[\w-][\w.-]*)*$/.test(name))
    throw new Error(`${JSON.stringify(name)} is no name of an object in a repository`);
  return `${DIRECTORY}/${name}`;
}

async function put(
  program: PgBackRest,
  repository: Repository,
  name: string,
  contents: Buffer,
  signal?: AbortSignal,
): Promise<void> {
  await runPgBackRest(program, repository, {
    command: ['repo-put', pathOf(name)],
    asked: 'be written',
    deadlineMs: DEADLINE_MS,
    options: { 'cipher-pass': repository.passphrase },
    input: contents,
    ...(signal === undefined ? {} : { signal }),
  });
}

async function get(
  program: PgBackRest,
  repository: Repository,
  name: string,
  signal?: AbortSignal,
  maxBytes = Infinity,
): Promise<Buffer | null> {
  const { code, stdout } = await runPgBackRest(program, repository, {
    command: ['repo-get', '--ignore-missing', pathOf(name)],
    asked: 'be read',
    deadlineMs: DEADLINE_MS,
    options: { 'cipher-pass': repository.passphrase },
    expected: [MISSING],
    maxBytes,
    ...(signal === undefined ? {} : { signal }),
  });
  return code === MISSING ? null : stdout;
}

async function remove(
  program: PgBackRest,
  repository: Repository,
  name: string,
  signal?: AbortSignal,
): Promise<void> {
  await runPgBackRest(program, repository, {
    command: ['repo-rm', pathOf(name)],
    asked: 'remove objects',
    deadlineMs: DEADLINE_MS,
    ...(signal === undefined ? {} : { signal }),
  });
}
