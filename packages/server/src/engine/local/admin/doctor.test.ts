import { expect, test } from 'vitest';
import { minorVersion, reserveFinding } from './doctor.ts';

test('the reserve is shown with its size, and how it comes back when it is not there', () => {
  const disk = { totalBytes: 20e9, usedPercent: 40.2 };
  expect(reserveFinding(disk, 200e6)).toEqual({
    what: 'reserve',
    state: 'ok',
    found: 'present: 200 MB, released when the disk is 98 % full',
  });
  expect(reserveFinding({ ...disk, usedPercent: 98.9 }, 0)).toEqual({
    what: 'reserve',
    state: 'note',
    found: 'released, or never made: 200 MB are missing; the disk is 98 % full',
    remedy: 'make room on the disk: below 95 % a running control plane makes it again',
  });
});

test('the doctor says which releases a PostgreSQL lacks, and how to get them', () => {
  const now = new Date('2026-11-29T12:00:00Z');
  const [npm] = minorVersion({ version: '18.4', major: 18, source: 'npm' }, now);
  expect(npm?.found).toContain('at least a minor release is missing, since 2026-11-12');
  expect(npm?.remedy).toContain('apt-get install postgresql-18');
  const [linked] = minorVersion({ version: '16.1', major: 16, source: 'linked' }, now);
  expect(linked?.remedy).toContain('link a newer installation');
  expect(minorVersion({ version: '18.6', major: 18, source: 'system' }, now)).toEqual([]);
});
