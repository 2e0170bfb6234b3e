import { lutimes, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { allocateUser, holdUser, type Users } from './users.ts';

/** Numbers that no account of a machine has, and that nothing runs as. */
const RANGE = [1_900_000_000, 1_900_000_002] as const;
const SIZE = 3;

let directory: string;
let services: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hd-users-'));
  services = join(directory, 'services');
  await mkdir(services);
  await mkdir(join(directory, 'registry'));
});
afterEach(() => rm(directory, { recursive: true }));

const registry = (): Users => ({ directory: join(directory, 'registry'), range: RANGE });

/** A user for each of as many services as the range has numbers. */
async function allocateAll(): Promise<number[]> {
  const users = registry();
  const uids: number[] = [];
  for (let n = 0; n < SIZE; n++) {
    const root = join(services, String(n));
    await mkdir(root);
    uids.push((await allocateUser(users, root)).uid);
  }
  return uids;
}

test('every number of the range is given once', async () => {
  expect(new Set(await allocateAll())).toEqual(new Set([RANGE[0], RANGE[0] + 1, RANGE[1]]));
});

test('when all are taken, a service is refused with a remedy; none is taken away', async () => {
  await allocateAll();
  const before = await readdir(join(directory, 'registry'));
  await expect(allocateUser(registry(), join(services, 'more'))).rejects.toThrow(
    /all 3 .* HOWDAH_UID_RANGE .* widen the range/,
  );
  expect(await readdir(join(directory, 'registry'))).toEqual(before);
});

test('the number of a deleted service is given again, not that of one being made', async () => {
  const [first = 0] = await allocateAll();
  await rm(join(services, '0'), { recursive: true });
  await expect(allocateUser(registry(), join(services, 'more'))).rejects.toThrow(
    'HOWDAH_UID_RANGE',
  );
  const hourAgo = new Date(Date.now() - 3_600_000);
  await lutimes(join(directory, 'registry', String(first)), hourAgo, hourAgo);
  expect((await allocateUser(registry(), join(services, 'more'))).uid).toBe(first);
});

test('a number out of the range, or of another service, is not held', async () => {
  const [first = 0] = await allocateAll();
  const users = registry();
  expect(holdUser(users, RANGE[1] + 1, join(services, '0'))).toBe(false);
  expect(holdUser(users, first, join(services, '1'))).toBe(false);
  expect(holdUser(users, first, join(services, '0'))).toBe(true);
});
