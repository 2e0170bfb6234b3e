/** The files that the checks read: tracked by git, neither generated nor built. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const GENERATED = /(^|\/)(generated|dist)\//;

/**
 * @returns paths relative to `root`; new files count before they are committed, deleted ones do not
 */
export function filesOf(root: string, pattern: RegExp): string[] {
  const listed = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
  });
  return [...new Set(listed.split('\n'))]
    .filter((path) => pattern.test(path) && !GENERATED.test(path))
    .filter((path) => existsSync(`${root}/${path}`))
    .toSorted();
}
