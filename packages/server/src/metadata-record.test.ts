import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { choosePlace, findMetadataPlace, nameOf, recordMetadata } from './metadata-record.ts';

const OURS = 'postgres://howdah:a@db1/howdah?sslmode=require';

test.each([
  ['nothing is recorded, and nothing is named', null, null, { place: null }],
  ['nothing is recorded', null, OURS, { place: OURS }],
  ['nothing is named', { place: OURS }, null, { place: OURS }],
  ['the recorded one is named', { place: OURS }, OURS, { place: OURS }],
  [
    'the recorded one is named with another user and password',
    { place: OURS },
    'postgres://h:b@db1:5432/howdah',
    { place: 'postgres://h:b@db1:5432/howdah' },
  ],
  ['another database is named', { place: OURS }, 'postgres://howdah:a@db1/shop', 'refused'],
  ['another port is named', { place: OURS }, 'postgres://howdah:a@db1:5433/howdah', 'refused'],
  ['another host is named', { place: OURS }, 'postgres://howdah:a@db2/howdah', 'refused'],
  ['the recorded one is our own', { place: null }, OURS, 'refused'],
])('the metadata database if %s', (_case, recorded, asked, chosen) => {
  expect(choosePlace(recorded, asked)).toEqual(chosen);
});

test('a refusal names both ways out, and no password', async () => {
  const home = await mkdtemp(join(tmpdir(), 'hd-record-'));
  onTestFinished(() => rm(home, { recursive: true }));
  await recordMetadata(home, { place: OURS, project: 'abcde12345' });
  expect((await stat(join(home, 'metadata-database.json'))).mode & 0o777).toBe(0o600);
  expect(await findMetadataPlace(home, null)).toBe(OURS);
  await expect(findMetadataPlace(home, 'postgres://u:secret@db2/shop')).rejects.toThrow(
    new RegExp(
      '^HOWDAH_DATABASE_URL: found the database shop on db2:5432;' +
        '(?!.*secret).*Unset.*howdah metadata-database "',
    ),
  );
});

test('a database is named without its user and password', () => {
  expect(nameOf('postgres://u:secret@[::1]:5433/my%20db?sslmode=require')).toBe(
    'the database my db on [::1]:5433',
  );
  expect(nameOf('postgres:///d?host=/var/run/postgresql')).toBe(
    'the database d on /var/run/postgresql:5432',
  );
  expect(nameOf(null)).toBe('a PostgreSQL of its own');
});
