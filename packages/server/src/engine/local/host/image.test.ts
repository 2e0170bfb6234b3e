import { expect, test } from 'vitest';
import { gigabytes, missingBytes } from './image.ts';

test('the bytes that a data volume promises and its disk does not have', () => {
  const store = { path: '/s.img', mounted: true, sizeBytes: 100, diskBytes: 40, diskFreeBytes: 60 };
  expect(missingBytes(store)).toBe(0);
  expect(missingBytes({ ...store, diskFreeBytes: 50 })).toBe(10);
});

test.each([
  [0, '0G'],
  [1, '1M'],
  [300 * 1024 ** 2, '300M'],
  [1024 ** 3, '1G'],
  [1.25 * 1024 ** 3, '1.3G'],
])('%d bytes are %s', (bytes, text) => expect(gigabytes(bytes)).toBe(text));
