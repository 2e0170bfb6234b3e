/** The files of cgroups are files of a directory here. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createCpuShares, createDiskShares, type Counters } from './shares.ts';
import type { Limits } from './groups.ts';

const MIB = 1024 ** 2;
const DISK = '254:0';
const GUARANTEED = 500;
let root: string;
let limits: Limits;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'howdah-'));
  limits = { kind: 'v2', root, disk: DISK };
  for (const id of ['a', 'b']) await mkdir(join(root, id));
});
afterEach(() => rm(root, { recursive: true }));

const contentOf = (id: string, name: string): Promise<string> =>
  readFile(join(root, id, name), 'utf8');

describe('the disk', () => {
  /** Both servers on a disk that writes 500 MiB a second. */
  async function setUp() {
    const written: Record<string, number> = { a: 0, b: 0 };
    const counters: Counters = { atMs: 0, writtenBytes: 0, writes: 0, writeMs: 0 };
    const shares = createDiskShares(() => ({ ...counters }), 500 * MIB, 2000);
    for (const id of ['a', 'b']) await shares.add(limits, id, GUARANTEED);
    /** A quarter of a second in which the servers write so many MiB a second. */
    const quarter = async (rates: Record<string, number>): Promise<void> => {
      counters.atMs += 250;
      for (const [id, rate] of Object.entries(rates)) {
        const bytes = (rate * MIB) / 4;
        written[id] = (written[id] ?? 0) + bytes;
        counters.writtenBytes += bytes;
        counters.writes += 100;
        counters.writeMs += 1000;
        const line = `${DISK} rbytes=1 wbytes=${written[id]} rios=1\n`;
        await writeFile(join(root, id, 'io.stat'), line);
      }
      await shares.shareOut();
    };
    const limitOf = async (id: string): Promise<number> => {
      const text = /^254:0 wbps=(\d+)$/.exec(await contentOf(id, 'io.max'))?.[1];
      return Math.round(Number(text) / MIB);
    };
    return { shares, quarter, limitOf };
  }

  test('is all for one that writes alone, and shared when a neighbour begins', async () => {
    const { quarter, limitOf } = await setUp();
    for (let n = 0; n < 50; n++) await quarter({ a: 0, b: 0 });
    expect([await limitOf('a'), await limitOf('b')]).toEqual([100, 100]);
    // The first observation of a server that was quiet finds where it begins.
    for (let n = 0; n < 2; n++) await quarter({ a: 100, b: 0 });
    expect([await limitOf('a'), await limitOf('b')]).toEqual([400, 100]);
    await quarter({ a: 400, b: 1 });
    expect([await limitOf('a'), await limitOf('b')]).toEqual([100, 100]);
  });

  test('says how long a limit held a server back, and how many others wrote', async () => {
    const { shares, quarter } = await setUp();
    expect(shares.held(limits, 'a')).toEqual({ ms: 0, neighbourMs: 0 });
    for (let n = 0; n < 50; n++) await quarter({ a: 0, b: 0 });
    for (let n = 0; n < 2; n++) await quarter({ a: 100, b: 0 });
    expect(shares.held(limits, 'a')).toEqual({ ms: 250, neighbourMs: 0 });
    await quarter({ a: 400, b: 100 });
    expect(shares.held(limits, 'a')).toEqual({ ms: 500, neighbourMs: 250 });
    // A server that writes less than it may is not held back itself.
    await quarter({ a: 200, b: 50 });
    expect(shares.held(limits, 'b')).toEqual({ ms: 250, neighbourMs: 250 });
    expect(shares.held(limits, 'a')).toEqual({ ms: 750, neighbourMs: 500 });
    shares.remove(limits, 'a');
    expect(shares.held(limits, 'a')).toBeNull();
  });

  test('is free for work that a client waits for, and shared when others write', async () => {
    const { shares, quarter, limitOf } = await setUp();
    for (let n = 0; n < 50; n++) await quarter({ a: 0, b: 0 });
    await shares.free(limits, 'b');
    expect(await limitOf('b')).toBe(400);
    await quarter({ a: 100, b: 1 });
    await quarter({ a: 100, b: 1 });
    expect(await limitOf('b')).toBe(100);
  });

  test('keeps the limit that the kernel has, and tries again when it refuses one', async () => {
    const { quarter, limitOf } = await setUp();
    for (let n = 0; n < 50; n++) await quarter({ a: 0, b: 0 });
    await quarter({ a: 100, b: 0 });
    const file = join(root, 'a', 'io.max');
    await rm(file);
    await mkdir(file);
    await expect(quarter({ a: 100, b: 0 })).rejects.toThrow('EISDIR');
    await rm(file, { recursive: true });
    await quarter({ a: 100, b: 0 });
    expect(await limitOf('a')).toBe(400);
  });

  test('has no server that was removed', async () => {
    const { shares, quarter } = await setUp();
    shares.remove(limits, 'b');
    await rm(join(root, 'b', 'io.max'));
    for (let n = 0; n < 50; n++) await quarter({ a: 100 });
    await shares.free(limits, 'b');
    await expect(contentOf('b', 'io.max')).rejects.toThrow('ENOENT');
  });
});

describe('the processors', () => {
  async function setUp() {
    const used: Record<string, number> = { a: 0, b: 0 };
    const ticks = { atMs: 0, busy: 0, all: 0 };
    const shares = createCpuShares(limits, () => ({ ...ticks }));
    for (const id of ['a', 'b']) await shares.add(id, GUARANTEED);
    /** A second in which the servers use so many thousandths of a processor, of two. */
    const second = async (millis: Record<string, number>, busy: number): Promise<void> => {
      ticks.atMs += 1000;
      ticks.all += 200;
      ticks.busy += 200 * busy;
      for (const [id, one] of Object.entries(millis)) {
        used[id] = (used[id] ?? 0) + one * 1000;
        await writeFile(join(root, id, 'cpu.stat'), `usage_usec ${used[id]}\nuser_usec 0\n`);
      }
      await shares.shareOut();
    };
    const weights = async () => [
      await contentOf('a', 'cpu.weight'),
      await contentOf('b', 'cpu.weight'),
    ];
    return { shares, second, weights };
  }

  test('go by weights; a server above its guarantee weighs less while others wait', async () => {
    const { second, weights } = await setUp();
    expect(await weights()).toEqual(['50', '50']);
    for (let n = 0; n < 3; n++) await second({ a: 1800, b: 100 }, 1);
    expect(await weights()).toEqual(['5', '50']);
    await second({ a: 400, b: 400 }, 1);
    expect(await weights()).toEqual(['50', '50']);
  });

  test('say how long none was idle, and how many others used them meanwhile', async () => {
    const { shares, second } = await setUp();
    for (let n = 0; n < 3; n++) await second({ a: 900, b: 50 }, 0.6);
    expect(shares.busy('a')).toEqual({ ms: 0, neighbourMs: 0 });
    // The first of these rounds reads the counters only.
    for (let n = 0; n < 3; n++) await second({ a: 1800, b: 50 }, 1);
    expect(shares.busy('a')).toEqual({ ms: 2000, neighbourMs: 0 });
    expect(shares.busy('b')).toEqual({ ms: 2000, neighbourMs: 2000 });
    await second({ a: 1500, b: 500 }, 1);
    expect(shares.busy('a')).toEqual({ ms: 3000, neighbourMs: 1000 });
    expect(shares.busy('c')).toBeNull();
  });

  test('go by the same weights where a processor is idle', async () => {
    const { second, weights } = await setUp();
    for (let n = 0; n < 3; n++) await second({ a: 900, b: 100 }, 0.6);
    expect(await weights()).toEqual(['50', '50']);
    for (let n = 0; n < 3; n++) await second({ a: 1800, b: 100 }, 1);
    await second({ a: 1800, b: 100 }, 0.9);
    expect(await weights()).toEqual(['50', '50']);
  });
});
