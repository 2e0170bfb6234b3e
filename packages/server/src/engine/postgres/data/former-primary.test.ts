import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { removeServerState } from './former-primary.ts';

test('nothing of a former primary returns that is in no WAL: slots, statistics', async () => {
  const data = await mkdtemp(join(tmpdir(), 'hdk-'));
  try {
    for (const slot of ['cdc', 'member_1', 'node_abc_1', 'replica', 'cdc.tmp'])
      await mkdir(join(data, 'pg_replslot', slot), { recursive: true });
    await writeFile(join(data, 'pg_replslot', 'cdc', 'state'), 'its old position');
    for (const file of [
      'pg_stat/pgstat.stat',
      'pg_stat/pg_stat_statements.stat',
      'pg_snapshots/1',
    ]) {
      await mkdir(join(data, file, '..'), { recursive: true });
      await writeFile(join(data, file), '');
    }
    await mkdir(join(data, 'base'));
    expect(await removeServerState({ data })).toEqual(['cdc', 'replica']);
    for (const directory of ['pg_replslot', 'pg_stat', 'pg_snapshots'])
      expect(await readdir(join(data, directory))).toEqual([]);
    expect(await readdir(data)).toContain('base');
  } finally {
    await rm(data, { recursive: true });
  }
});
