import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { markerOf } from './marker.ts';

test('markers of older releases, which wrote `born`, are read; others are none', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'hd-marker-'));
  const marker = join(directory, 'service.json');
  const read = async (text: string) => {
    await writeFile(marker, text);
    return markerOf({ marker });
  };
  const ours = {
    id: 'abcdefghij',
    installation: '18-npm',
    madeIn: 'x',
    parent: null,
    began: null,
    uid: 200001,
    userOf: null,
    recovery: null,
    upgrade: null,
    exchange: null,
  };
  for (const provisioned of [true, false]) {
    expect(await read(JSON.stringify({ ...ours, provisioned }))).toEqual({ ...ours, provisioned });
    expect(await read(JSON.stringify({ ...ours, born: provisioned }))).toEqual({
      ...ours,
      provisioned,
    });
  }
  for (const text of [
    '',
    '{',
    'null',
    '[]',
    JSON.stringify(ours),
    JSON.stringify({ ...ours, provisioned: 'yes' }),
  ])
    expect(await read(text), text).toBeNull();
  await rm(directory, { recursive: true });
});
