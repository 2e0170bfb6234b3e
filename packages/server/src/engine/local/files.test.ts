import { SERVICE_SIZES } from '@howdah/contract';
import { expect, test } from 'vitest';
import { configFiles, filesOfUnborn, type ServerInput } from './files.ts';
import { instancePaths } from './layout.ts';

const input: ServerInput = {
  paths: instancePaths("/srv/it's here"),
  installation: { name: '17-system', major: 17, version: '17.6', bin: '/bin', source: 'system', extensions: [] },
  extensions: [],
  size: SERVICE_SIZES[0],
  listen: { address: '127.0.0.1', port: 20001 },
  admitted: null,
};
const files = configFiles(input, ['root', 'we"ird']);
const lines = (text: string) => text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));

test('every setting stands once, on a line of its own', () => {
  const names = lines(files['postgresql.conf']).map((line) => /^([a-z_.]+) = .+$/.exec(line)?.[1]);
  expect(names).not.toContain(undefined);
  expect(new Set(names).size).toBe(names.length);
  expect(files['postgresql.conf']).toContain("\nlog_directory = '/srv/it''s here/logs'\n");
  expect(files['postgresql.conf']).toContain('\nport = 20001\n');
  expect(files['postgresql.conf']).toContain("\nlisten_addresses = '127.0.0.1'\n");
  expect(files['postgresql.conf']).toContain('\nssl = on\n');
});

test('who gets in: we by the socket, users by TLS and SCRAM into their database', () => {
  expect(lines(files['pg_hba.conf']).map((line) => line.split(/\s+/))).toEqual([
    ['local', 'all,replication', 'howdah', 'peer', 'map=control'],
    ['local', 'tsdb', 'howdah_pooler,howdah_reader', 'peer', 'map=control'],
    ['local', 'tsdb', 'all', 'scram-sha-256'],
    ['hostssl', 'all', 'howdah,howdah_pooler,howdah_reader', 'all', 'reject'],
    ['hostssl', 'tsdb', 'all', 'all', 'scram-sha-256'],
  ]);
  expect(lines(files['pg_ident.conf'])).toEqual([
    'control "root" howdah',
    'control "root" howdah_pooler',
    'control "root" howdah_reader',
    'control "we""ird" howdah',
    'control "we""ird" howdah_pooler',
    'control "we""ird" howdah_reader',
  ]);
});

test('nobody but we gets into a fork before it is born; nothing else differs', () => {
  const unborn = filesOfUnborn(files);
  expect(lines(unborn['pg_hba.conf'])).toEqual(lines(files['pg_hba.conf']).slice(0, -1));
  expect({ ...unborn, 'pg_hba.conf': files['pg_hba.conf'] }).toEqual(files);
});

test('without an address there is no TCP', () => {
  const { 'postgresql.conf': conf } = configFiles({ ...input, listen: null }, []);
  expect(conf).toContain("\nlisten_addresses = ''\n");
  expect(conf).not.toContain('ssl');
});

test('the same input makes the same files, and only what depends on it differs', () => {
  expect(configFiles({ ...input }, ['root', 'we"ird'])).toEqual(files);
  for (const other of [
    { ...input, size: SERVICE_SIZES[1] },
    { ...input, extensions: ['timescaledb' as const] },
    { ...input, listen: { address: '0.0.0.0', port: 20001 } },
    { ...input, listen: { address: '127.0.0.1', port: 20002 } },
  ]) {
    const made = configFiles(other, ['root', 'we"ird']);
    expect(made['postgresql.conf']).not.toBe(files['postgresql.conf']);
    expect(made['pg_hba.conf']).toBe(files['pg_hba.conf']);
  }
  expect(configFiles(input, ['howdah'])['postgresql.conf']).toBe(files['postgresql.conf']);
});
