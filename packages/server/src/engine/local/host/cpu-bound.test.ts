import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { cpuQuota, quotaOf } from './cpu-bound.ts';
import { hasCpuQuota, writeCpuQuota, type Limits } from './groups.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'hd-cpu-bound-'));
  await mkdir(join(root, 'a'));
});
afterEach(() => rm(root, { recursive: true }));

const V1: Omit<Extract<Limits, { kind: 'v1' }>, 'cpu'> = {
  kind: 'v1',
  cpuacct: null,
  memory: '',
  blkio: null,
};
const put = (file: string, text: string) => writeFile(join(root, 'a', file), text);
const read = (file: string) => readFile(join(root, 'a', file), 'utf8');

test.each([
  [250, { quotaUs: 10_000, periodUs: 40_000 }],
  [500, { quotaUs: 10_000, periodUs: 20_000 }],
  [1000, { quotaUs: 20_000, periodUs: 20_000 }],
  [8000, { quotaUs: 160_000, periodUs: 20_000 }],
])(
  '%i millicores are a share of a short period, two slices of the kernel at least',
  (cpuMillis, quota) => {
    expect(cpuQuota(cpuMillis)).toEqual(quota);
  },
);

test('a service says itself whether it is bound, or is as its region; a shared one is not', () => {
  const size = { cpuMillis: 500, memoryGbs: 2 };
  expect(quotaOf({ size }, false)).toBeNull();
  expect(quotaOf({ size }, true)).toEqual(cpuQuota(500));
  expect(quotaOf({ size, cpuBound: true }, false)).toEqual(cpuQuota(500));
  expect(quotaOf({ size, cpuBound: false }, true)).toBeNull();
  expect(quotaOf({ size: 'shared', cpuBound: true }, true)).toBeNull();
});

test('a quota is written into the group of a server, and lifted, with cgroup v2', async () => {
  const limits: Limits = { kind: 'v2', root, disk: null };
  await put('cpu.max', 'max 100000\n');
  expect(hasCpuQuota(limits, 'a')).toBe(false);
  await writeCpuQuota(limits, 'a', cpuQuota(500));
  expect(await read('cpu.max')).toBe('10000 20000');
  expect(hasCpuQuota(limits, 'a')).toBe(true);
  await writeCpuQuota(limits, 'a', null);
  expect(await read('cpu.max')).toBe('max');
  expect(hasCpuQuota(limits, 'a')).toBe(false);
});

test('a quota is written into the group of a server, and lifted, with cgroup v1', async () => {
  const limits: Limits = { ...V1, cpu: root };
  await put('cpu.cfs_quota_us', '-1\n');
  await put('cpu.cfs_period_us', '100000\n');
  expect(hasCpuQuota(limits, 'a')).toBe(false);
  await writeCpuQuota(limits, 'a', cpuQuota(250));
  expect(await read('cpu.cfs_quota_us')).toBe('10000');
  expect(await read('cpu.cfs_period_us')).toBe('40000');
  expect(hasCpuQuota(limits, 'a')).toBe(true);
  await writeCpuQuota(limits, 'a', null);
  expect(await read('cpu.cfs_quota_us')).toBe('-1');
  expect(hasCpuQuota(limits, 'a')).toBe(false);
});

test('a kernel without quotas is named where one is asked for, and only there', async () => {
  for (const limits of [
    { kind: 'v2', root, disk: null },
    { ...V1, cpu: root },
  ] as const) {
    expect(hasCpuQuota(limits, 'a')).toBeNull();
    await writeCpuQuota(limits, 'a', null);
    await expect(writeCpuQuota(limits, 'a', cpuQuota(500))).rejects.toThrow(/CONFIG_CFS_BANDWIDTH/);
  }
});
