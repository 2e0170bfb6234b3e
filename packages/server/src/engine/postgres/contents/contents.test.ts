import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findUncopied } from './contents.ts';

let data: string;
beforeEach(async () => {
  data = await mkdtemp(join(tmpdir(), 'hd-uncopied-'));
  await mkdir(join(data, 'base', '5'), { recursive: true });
  await mkdir(join(data, 'pg_replslot'));
  await writeFile(join(data, 'base', '5', '16384'), '');
});
afterEach(() => rm(data, { recursive: true }));

/** The state of a slot, as PostgreSQL 16 to 18 begin it. */
async function addSlot(name: string, database: number): Promise<void> {
  const state = Buffer.alloc(200);
  state.writeUInt32LE(0x1051ca1, 0);
  state.write(name, 16);
  state.writeUInt32LE(database, 80);
  await mkdir(join(data, 'pg_replslot', name));
  await writeFile(join(data, 'pg_replslot', name, 'state'), state);
}

test('a stopped server without unlogged relations and slots has all of it in a copy', async () => {
  await addSlot('physical', 0);
  await mkdir(join(data, 'pg_replslot', 'empty'));
  expect(await findUncopied(data)).toBe(null);
});

test('an init fork is that of an unlogged relation', async () => {
  await writeFile(join(data, 'base', '5', '16385_init'), '');
  expect(await findUncopied(data)).toContain('unlogged tables or sequences');
});

test('a slot with a database is a logical one', async () => {
  await addSlot('cdc', 16_384);
  expect(await findUncopied(data)).toContain('logical slots');
});
