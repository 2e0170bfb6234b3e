import { expect, test } from 'vitest';
import { diskPressure, diskWarning } from './disk.ts';

const disk = (usedPercent: number) => ({
  usedPercent,
  freeBytes: (100 - usedPercent) * 1e9,
  totalBytes: 100e9,
  path: '/data',
});

test('a full disk causes a warning from 85 %, and a stronger one from 95 %', () => {
  expect(diskWarning(disk(84.9))).toBeNull();
  expect(diskWarning(disk(85))?.message).toContain(
    'the disk of the services is 85 % full (15.0 of 100.0 GB free); ' +
      'from 90 % on deleted services are purged early',
  );
  expect(diskWarning(disk(94.9))?.message).toContain(
    'is 94 % full (5.1 of 100.0 GB free); deleted services are purged early, ' +
      'from 95 % on no services and forks are made',
  );
  expect(diskWarning(disk(95))?.message).toContain(
    'no services and forks are made, and from 98 % on services that grow',
  );
  expect(diskWarning(disk(98))?.message).toContain(
    'services that grow become read-only, and a server that finds no space',
  );
  expect(diskWarning(disk(100))?.code).toBe('DISK');
});

test('a disk is full from 98 % until it is below 95 %, and scarce with less than 128 MB', () => {
  expect(diskPressure(disk(97.9), 'none')).toBe('none');
  expect(diskPressure(disk(98), 'none')).toBe('full');
  expect(diskPressure(disk(95), 'full')).toBe('full');
  expect(diskPressure(disk(94.9), 'scarce')).toBe('none');
  expect(diskPressure({ ...disk(99.9), freeBytes: 127e6 }, 'none')).toBe('scarce');
  expect(diskPressure({ ...disk(97), freeBytes: 127e6 }, 'none')).toBe('none');
});
