import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { writeDurably } from './durable-files.ts';

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hdd-'));
});
afterAll(() => rm(directory, { recursive: true }));

test('a file is written whole, with its mode, and nothing beside it', async () => {
  const path = join(directory, 'whole');
  await writeDurably(path, 'one', 0o600);
  await writeDurably(path, 'two', 0o600);
  expect(await readFile(path, 'utf8')).toBe('two');
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  await expect(stat(`${path}.new`)).rejects.toThrow('ENOENT');
});
