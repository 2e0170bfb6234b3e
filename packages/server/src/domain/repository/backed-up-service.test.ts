import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { parseServices } from './backed-up-service.ts';

const ROW = {
  id: 'aaaaaaaaaa',
  name: 'orders',
  addons: ['time-series'],
  preload: ['pg_cron'],
  storage_gb: 40,
  upgrade: null,
  upgraded: null,
  project_id: 'pppppppppp',
  parent_id: null,
  deleted_at: null,
};
type Row = Record<string, unknown>;

const lineOf = (row: Row, table = 'services'): string => JSON.stringify({ table, row });
const parse = (...lines: string[]) => parseServices(gzipSync(lines.join('\n')));
/** The names of the services that are read of some rows. */
const namesOf = async (...rows: Row[]): Promise<string[]> =>
  (await parse(...rows.map((row) => lineOf({ ...ROW, ...row })))).map(({ name }) => name);

test('the services of another installation are read, by their names', async () => {
  const head = JSON.stringify({ howdah: 'control plane', migrations: [], files: {} });
  const found = await parse(
    head,
    lineOf({ ...ROW, id: 'bbbbbbbbbb', name: 'über', addons: [], more: 1 }),
    lineOf({ name: 'a project' }, 'projects'),
    lineOf(ROW),
    '{"rows":3}',
  );
  expect(found).toEqual([
    {
      id: 'aaaaaaaaaa',
      name: 'orders',
      addons: ['time-series'],
      preload: ['pg_cron'],
      storageGb: 40,
      stanzas: ['aaaaaaaaaa'],
    },
    expect.objectContaining({ id: 'bbbbbbbbbb', name: 'über', addons: [] }),
  ]);
});

test('spares, read replica sets and deleted services are not offered', async () => {
  const others = [{ project_id: null }, { parent_id: 'bbbbbbbbbb' }, { deleted_at: '2026-01-01' }];
  expect(await namesOf(...others, { name: 'left' })).toEqual(['left']);
});

test('a row with anything but the shape of a service is skipped', async () => {
  const hostile: Row[] = [
    { id: '../../etc' },
    { id: 'aaaaaaaaaa\n' },
    { id: null },
    { name: '' },
    { name: 'x'.repeat(129) },
    { name: 'esc\u001b[2J' },
    { name: 'right-to-left \u202e' },
    { addons: ['unknown'] },
    { addons: 'ai' },
    { preload: ['a,b'] },
    { preload: ["x' \n shared_preload_libraries = 'y"] },
    { preload: [['nested']] },
    { storage_gb: -1 },
    { storage_gb: 1e300 },
    { upgrade: { id: '../x', to: 17, undo: false, problem: null } },
    { upgrade: [] },
  ];
  expect(await namesOf(...hostile, { name: 'left' })).toEqual(['left']);
  const broken = `{"table":"services","row":{${'['.repeat(1000)}`;
  expect(await parse(broken, '', 'null', lineOf(ROW))).toHaveLength(1);
});

test('a line that is too long is skipped, and what follows it is read', async () => {
  const long = lineOf({ ...ROW, name: 'long', doc: 'x'.repeat(1_100_000) });
  expect((await parse(long, lineOf(ROW))).map(({ name }) => name)).toEqual(['orders']);
});

test('an upgraded service has the stanzas of its upgrades, the last one first', async () => {
  const first = { id: 'ffffffffff', from: 16, at: '2026-01-01T00:00:00Z', before: null };
  const stanzasOf = async (row: Row) => (await parse(lineOf({ ...ROW, ...row })))[0]?.stanzas;
  const upgraded = { ...first, id: 'ssssssssss', before: first };
  const [former, last] = ['aaaaaaaaaa-ffffffffff', 'aaaaaaaaaa-ssssssssss'];
  expect(await stanzasOf({ upgraded })).toEqual([last, former, 'aaaaaaaaaa']);
  const upgrade = { id: 'nnnnnnnnnn', to: 18, undo: false, problem: null };
  expect(await stanzasOf({ upgraded: first, upgrade })).toEqual([
    'aaaaaaaaaa-nnnnnnnnnn',
    former,
    'aaaaaaaaaa',
  ]);
  // A value that names no upgrade ends the chain.
  expect(await stanzasOf({ upgraded: { ...first, id: '../x' } })).toEqual(['aaaaaaaaaa']);
  expect(await stanzasOf({ upgraded: 'x' })).toEqual(['aaaaaaaaaa']);
  let deep: Row = first;
  for (let n = 0; n < 1000; n++) deep = { ...first, before: deep };
  expect((await stanzasOf({ upgraded: deep }))?.length).toBe(33);
});

test('contents that are no data of a control plane are an error, not a crash', async () => {
  await expect(parseServices(Buffer.from('not compressed'))).rejects.toThrow();
  const cut = gzipSync(lineOf(ROW)).subarray(0, 30);
  await expect(parseServices(cut)).rejects.toThrow();
  expect(await parseServices(gzipSync(''))).toEqual([]);
  const many = Array.from({ length: 10_001 }, () => lineOf(ROW));
  await expect(parse(...many)).rejects.toThrow('more than 10000 services');
});
