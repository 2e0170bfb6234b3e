import { expect, test } from 'vitest';
import { parseControlFile } from '../../engine/postgres/contents/control-file.ts';
import { judge, needsPreload } from './extension-rules.ts';

const control = (name: string, text: string) =>
  parseControlFile({ name, directory: '/x', files: [] }, text);

test.each([
  ['pg_trgm', 'trusted = true', true, 'trust'],
  ['pg_partman', 'superuser = false', true, 'needs no superuser'],
  ['unheard_of', '', false, 'nobody has checked'],
  ['hypopg', '', true, 'planner'],
  // The list is stricter than the authors are.
  ['pg_cron', 'trusted = true', false, 'launcher'],
  ['constructor', '', false, 'nobody has checked'],
])('%s with "%s": allowed %s', (name, text, allowed, why) => {
  const rule = judge(control(name, text));
  expect(rule).toMatchObject({ allowed, reason: expect.stringContaining(why) });
});

test.each([
  'dblink',
  'postgres_fdw',
  'file_fdw',
  'http',
  'plperlu',
  'plpython3u',
  'postgis_raster',
])('%s, which reaches out of the server, is refused with a reason', (name) => {
  const { allowed, reason } = judge(control(name, ''));
  expect(allowed).toBe(false);
  expect(reason.length).toBeGreaterThan(10);
});

test('only extensions of the table of libraries need a restart', () => {
  expect(['timescaledb', 'pgaudit', 'vector', 'constructor'].map(needsPreload)).toEqual([
    true,
    true,
    false,
    false,
  ]);
});
