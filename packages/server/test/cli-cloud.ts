/** An installation, and the command line with and without it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { install, type Installation } from './harness.ts';
import { untilExpected } from './until.ts';

const HOWDAH = fileURLToPath(new URL('../../cli/dist/howdah.js', import.meta.url));

export let cloud: Installation;

type Outcome = { code: number | null; stdout: string; stderr: string };

/** Runs the command line to its end with an environment of the test's own. */
export async function howdah(
  args: readonly string[],
  env: Record<string, string>,
): Promise<Outcome> {
  const child = spawn(process.execPath, [HOWDAH, ...args], {
    env: { PATH: process.env['PATH'] ?? '', NO_COLOR: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 800_000, // what hangs must not outlive the test
  });
  const said = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said.stderr += text));
  await once(child, 'close');
  return { code: child.exitCode, ...said };
}

/** A home of its own that is taken away, whatever was started in it. */
export async function withHome<T>(work: (home: string) => Promise<T>): Promise<T> {
  const home = await mkdtemp(join(tmpdir(), 'hd-'));
  await chmod(home, 0o755);
  try {
    return await work(home);
  } finally {
    await howdah(['down', '--databases'], { HOWDAH_HOME: home });
    await rm(home, { recursive: true, force: true });
  }
}

/** The last output of `up`, which it prints a moment after the API accepts connections. */
export async function greeting(): Promise<string> {
  await untilExpected('howdah up has printed its last line', async () =>
    expect(cloud.output.join('')).toContain('Ctrl-C stops'),
  );
  return cloud.output.join('');
}

export async function setUp(): Promise<void> {
  cloud = await install();
}

export async function tearDown(): Promise<void> {
  expect(await cloud?.destroy()).toEqual([]);
}
