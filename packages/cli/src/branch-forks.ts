/**
 * The forks of the branches of a git repository. They are recorded in its `.git/howdah`, which all
 * worktrees share, with the passwords: only its owner reads it. Each project of an installation has
 * a file of its own, so that a call to one does not miss the forks of another.
 */
import { execFile } from 'node:child_process';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { Failure } from './exit.ts';

/** A fork, as it was made for a branch. */
export type BranchFork = Readonly<{ service_id: string; password: string }>;

/** `from`: the service that is forked; `ttl`: a length of time; null: none was asked for. */
export type BranchForks = Readonly<{
  from: string | null;
  ttl: string | null;
  variable: string;
  forks: Readonly<Record<string, BranchFork>>;
}>;

export type Repository = Readonly<{
  /** The directory of the worktree. */
  top: string;
  /** The directory that all worktrees share. */
  common: string;
  /** The branch that is checked out; null: none is. */
  branch: string | null;
}>;

const NONE: BranchForks = { from: null, ttl: null, variable: 'DATABASE_URL', forks: {} };

/** @throws Failure usage outside of a repository */
export async function findRepository(): Promise<Repository> {
  const [top, common] = await Promise.all([
    git('rev-parse', '--show-toplevel'),
    git('rev-parse', '--git-common-dir'),
  ]);
  if (top === null || common === null)
    throw new Failure(
      'howdah checkout: this directory is in no git repository; cd into one, or git init',
      'usage',
    );
  return { top, common: resolve(common), branch: await git('symbolic-ref', '--short', 'HEAD') };
}

/** The output of git; null: it failed. @throws Failure where it is not installed */
export async function git(...words: readonly string[]): Promise<string | null> {
  try {
    const { stdout } = await promisify(execFile)('git', words);
    return stdout.replace(/\n$/, '');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
      throw new Failure('git is not installed: apt-get install git', 'unavailableHere');
    return null;
  }
}

export async function hasBranch(name: string): Promise<boolean> {
  return (await git('show-ref', '--verify', '--quiet', `refs/heads/${name}`)) !== null;
}

/** The text of a file; null: there is none. */
export async function readIfThere(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}

/** The file in which the forks of a project are recorded. */
export const forksFileOf = ({ common }: Repository, projectId: string): string =>
  join(common, 'howdah', `${projectId}.json`);

/** @throws Failure for a file that is none of ours */
export async function readForks(file: string): Promise<BranchForks> {
  const text = await readIfThere(file);
  if (text === null) return NONE;
  const found = parseForks(text);
  if (found === null)
    throw new Failure(`${file} cannot be read: remove it, and each branch gets another fork`);
  return found;
}

function parseForks(text: string): BranchForks | null {
  try {
    const found: unknown = JSON.parse(text);
    if (typeof found !== 'object' || found === null) return null;
    const {
      from = null,
      ttl = null,
      variable = NONE.variable,
      forks = {},
    }: Record<string, unknown> = {
      ...found,
    };
    if (typeof variable !== 'string' || !isTextOrNull(from) || !isTextOrNull(ttl)) return null;
    if (typeof forks !== 'object' || forks === null) return null;
    const entries = Object.entries(forks).filter((entry): entry is [string, BranchFork] =>
      isFork(entry[1]),
    );
    return { from, ttl, variable, forks: Object.fromEntries(entries) };
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

const isTextOrNull = (value: unknown): value is string | null =>
  value === null || typeof value === 'string';

const isFork = (value: unknown): value is BranchFork =>
  typeof value === 'object' &&
  value !== null &&
  'service_id' in value &&
  typeof value.service_id === 'string' &&
  'password' in value &&
  typeof value.password === 'string';

/** Changes what is recorded, as it is now: another worktree may have written meanwhile. */
export async function changeForks(
  file: string,
  change: (forks: BranchForks) => BranchForks,
): Promise<BranchForks> {
  const changed = change(await readForks(file));
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const unfinished = `${file}.${process.pid}`;
  await writeFile(unfinished, `${JSON.stringify(changed, null, 2)}\n`, { mode: 0o600 });
  await rename(unfinished, file);
  return changed;
}
