/** Ends the installations that test files have shared, after the last test of a run. */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const HOWDAH = fileURLToPath(new URL('../../cli/dist/howdah.js', import.meta.url));
/** Nothing takes so long on the slowest machine. */
const HUNG_MS = 600_000;
const run = promisify(execFile);

/** @returns ends them. @throws AggregateError: what the check found, a stop that failed */
export default async function setUp(): Promise<() => Promise<void>> {
  const directory = await mkdtemp(join(tmpdir(), 'hd-shared-'));
  process.env['TEST_SHARED'] = directory;
  return async () => {
    const ended = [];
    for (const name of await readdir(directory))
      ended.push(...(await Promise.allSettled([end(join(directory, name))])));
    await rm(directory, { recursive: true });
    const failed = ended.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []));
    if (failed.length === 0) return;
    // vitest prints what is thrown here, and counts it as no failure.
    process.exitCode = 1;
    throw new AggregateError(failed, failed.map(String).join('\n'));
  };
}

/** @param path of the file with the environment of an installation */
async function end(path: string): Promise<void> {
  const env: Record<string, string> = JSON.parse(await readFile(path, 'utf8'));
  try {
    await run(process.execPath, [HOWDAH, 'audit'], { env, timeout: HUNG_MS });
  } finally {
    await run(process.execPath, [HOWDAH, 'down', '--databases'], { env, timeout: HUNG_MS });
    await rm(env['HOWDAH_HOME'] ?? '', { recursive: true });
  }
}
