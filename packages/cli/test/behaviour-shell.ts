/** The command line against an API that answers as a test says, from a shell or a terminal. */
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { type Answer } from './answers.ts';
import { HOWDAH, howdah, serve } from './api.ts';

/** A directory with a `howdah` for shells. */
export let bin: string;

/** An API for one test. The answers may be changed while it serves. */
export async function api(answers: Record<string, Answer> = {}) {
  const served = await serve(answers);
  onTestFinished(() => served.close());
  const env = {
    ...served.env,
    HOWDAH_HOME: join(bin, 'none'),
    PATH: `${bin}:${process.env['PATH'] ?? ''}`,
  };
  return { ...served, env, run: (...line: string[]) => howdah(line, env) };
}

export const ok = (body: unknown): Answer => ({ status: 200, body });

export async function setUp(): Promise<void> {
  bin = await mkdtemp(join(tmpdir(), 'hd-'));
  await writeFile(join(bin, 'howdah'), `#!/bin/sh\nexec '${process.execPath}' '${HOWDAH}' "$@"\n`);
  await chmod(join(bin, 'howdah'), 0o755);
}

export async function tearDown(): Promise<void> {
  await rm(bin, { recursive: true, force: true });
}
