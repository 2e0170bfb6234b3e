import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import {
  forgetWriteRate,
  setWriteRate,
  withoutWriteLimit,
  writeBytesPerSecond,
  type RateFile,
} from './write-rate.ts';

let directory: string;
let file: RateFile;
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  directory = await mkdtemp(join(tmpdir(), 'howdah-'));
  file = { path: join(directory, 'rate'), line: (rate) => String(rate) };
  await setWriteRate(file, 32);
});
afterEach(async () => {
  forgetWriteRate(file);
  vi.useRealTimers();
  await rm(directory, { recursive: true });
});

const written = () => readFile(file.path, 'utf8');
/** Returns the content of the file at the beginning of work of so many milliseconds. */
const duringWork = (ms = 0): Promise<string> =>
  withoutWriteLimit(file, async () => {
    const found = await written();
    await vi.advanceTimersByTimeAsync(ms);
    return found;
  });

test('the rate of writes follows from the CPU, down to a minimum', () => {
  const size = { cpuMillis: 2000, memoryGbs: 8 };
  expect(writeBytesPerSecond(size)).toBe(128 * 1024 ** 2);
  expect(writeBytesPerSecond({ ...size, cpuMillis: 250 })).toBe(32 * 1024 ** 2);
  expect(writeBytesPerSecond('shared')).toBe(32 * 1024 ** 2);
});

test('the limit is lifted during work, and is there again after it, also when that fails', async () => {
  expect(await written()).toBe('32');
  expect(await duringWork()).toBe('null');
  expect(await written()).toBe('32');
  await expect(withoutWriteLimit(file, () => Promise.reject(new Error('no')))).rejects.toThrow(
    'no',
  );
  expect(await written()).toBe('32');
});

test('work at the same time shares it: the last to end puts the limit back', async () => {
  await withoutWriteLimit(file, async () => {
    expect(await duringWork()).toBe('null');
    expect(await written()).toBe('null');
    await setWriteRate(file, 64);
    expect(await written()).toBe('null');
  });
  expect(await written()).toBe('64');
});

test('it is lifted for a hundredth of the time, and ten seconds at once', async () => {
  await withoutWriteLimit(file, async () => {
    await vi.advanceTimersByTimeAsync(9900);
    expect(await written()).toBe('null');
    await vi.advanceTimersByTimeAsync(200);
    await vi.waitFor(async () => expect(await written()).toBe('32'));
  });
  expect(await duringWork()).toBe('32');
  await vi.advanceTimersByTimeAsync(50_000);
  expect(await duringWork(400)).toBe('null');
  expect(await duringWork(200)).toBe('null');
  // It is put back in the background, and a file that is being written may be empty.
  await vi.waitFor(async () => expect(await written()).toBe('32'));
  expect(await duringWork()).toBe('32');
});

test('it can stay lifted for a moment after the work', async () => {
  await withoutWriteLimit(file, () => Promise.resolve(), 500);
  expect(await written()).toBe('null');
  await vi.advanceTimersByTimeAsync(600);
  await vi.waitFor(async () => expect(await written()).toBe('32'));
});

test('a limit that could not be put back is put back later', async () => {
  const broken = { ...file, path: join(directory, 'later', 'rate') };
  await mkdir(join(directory, 'later'));
  await setWriteRate(broken, 32);
  await withoutWriteLimit(broken, () => rm(join(directory, 'later'), { recursive: true }));
  await mkdir(join(directory, 'later'));
  await vi.advanceTimersByTimeAsync(1100);
  await vi.waitFor(async () => expect(await readFile(broken.path, 'utf8')).toBe('32'));
  forgetWriteRate(broken);
});

test('a server that is about to stop has no limit to be put back', async () => {
  await withoutWriteLimit(file, () => setWriteRate(file, null));
  expect(await written()).toBe('null');
});
