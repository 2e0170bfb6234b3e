/**
 * The last green run of each part on this machine, with a fingerprint of the files that the part
 * depends on: while these are the same, it need not run again.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname } from 'node:path';
import type { Totals } from './report.ts';

export type GreenRun = Readonly<{ fingerprint: string; commit: string; tests: Totals | null }>;
export type GreenRuns = Readonly<Partial<Record<string, GreenRun>>>;

const FILE = `${process.env['XDG_CACHE_HOME'] ?? `${homedir()}/.cache`}/howdah/green-runs.json`;

const git = (root: string, ...args: readonly string[]): string =>
  execFileSync('git', args, { cwd: root, encoding: 'utf8', maxBuffer: 1e9 });

export const commitOf = (root: string): string => git(root, 'rev-parse', '--short', 'HEAD').trim();

/** @param paths git's pathspecs. @returns changed and new files that no commit has, one a line */
export const uncommittedIn = (root: string, paths: readonly string[]): string =>
  git(root, 'status', '--porcelain', '--untracked-files=all', '--', ...paths);

/** @returns a hash of git's ids of these files, as they are committed */
export function fingerprintOf(root: string, paths: readonly string[]): string {
  const files = git(root, 'ls-files', '--stage', '--', ...paths);
  return createHash('sha256').update(files).digest('hex').slice(0, 16);
}

/** @returns nothing where there is no file, or one of another release */
export function readGreenRuns(): GreenRuns {
  try {
    const found: GreenRuns = JSON.parse(readFileSync(FILE, 'utf8'));
    return found;
  } catch {
    return {};
  }
}

/** @param run null: the part is not green any more */
export function writeGreenRun(part: string, run: GreenRun | null): void {
  const { [part]: _former, ...others } = readGreenRuns();
  const runs = run === null ? others : { ...others, [part]: run };
  mkdirSync(dirname(FILE), { recursive: true });
  writeFileSync(`${FILE}.new`, `${JSON.stringify(runs, null, 2)}\n`);
  renameSync(`${FILE}.new`, FILE);
}
