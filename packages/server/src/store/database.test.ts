import { expect, test } from 'vitest';
import { whyNotMigrated } from './database.ts';

test('a metadata database of a newer version is named as such, with what to do', () => {
  const message = whyNotMigrated(
    new Error('corrupted migrations: previously executed migration 0099_future is missing'),
    null,
  );
  expect(message).toContain('newer version of Howdah');
  expect(message).toContain('0099_future');
  expect(message).toContain('Start that version');
});

test('a migration that fails is named with its cause, and what to do', () => {
  const message = whyNotMigrated(new Error('relation "services" does not exist'), '0012_leases');
  expect(message).toContain(
    'migration 0012_leases of the metadata database failed: relation "services" does not exist',
  );
  expect(message).toContain('howdah up');
  expect(whyNotMigrated(new Error('disk full'), null)).toContain('could not be run: disk full');
});
