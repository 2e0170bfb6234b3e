import { expect, test } from 'vitest';
import { reserveFinding } from './doctor.ts';

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
