import { expect, test } from 'vitest';
import { installationUmask } from './umask.ts';

test.each([0o000, 0o022, 0o027, 0o077, 0o777])(
  'root makes files that others can read: %i',
  (umask) => {
    expect(installationUmask(umask, true)).toBe(0o022);
  },
);

test('a user keeps files closed to others, and none is closed to the user', () => {
  expect(installationUmask(0o077, false)).toBe(0o077);
  expect(installationUmask(0o027, false)).toBe(0o027);
  expect(installationUmask(0o777, false)).toBe(0o077);
});
