import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { idFromBytes, isId } from './ids.ts';

test('an id is 10 characters of a-z0-9, whatever the bytes', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 0, maxLength: 40 }), (bytes) => {
      const id = idFromBytes(bytes);
      const usable = bytes.filter((byte) => byte < 252).length;
      if (usable < 10) expect(id).toBeNull();
      else expect(id).toMatch(/^[a-z0-9]{10}$/);
    }),
  );
});

test('every letter is equally frequent', () => {
  const counts = new Map<string, number>();
  for (let byte = 0; byte < 256; byte++) {
    const letter = idFromBytes(Uint8Array.from({ length: 10 }, () => byte))?.[0];
    if (letter !== undefined) counts.set(letter, (counts.get(letter) ?? 0) + 1);
  }
  expect(counts.size).toBe(36);
  expect(new Set(counts.values())).toEqual(new Set([7]));
});

test('isId accepts ids only', () => {
  for (const id of ['abcdefghij', '0123456789', 'a1b2c3d4e5']) expect(isId(id)).toBe(true);
  for (const id of [
    '',
    'abcdefghi',
    'abcdefghijk',
    'ABCDEFGHIJ',
    'abcdefghi\0',
    'abcdefghij\n',
    '../../etc/',
    'ábcdefghij',
  ])
    expect(isId(id)).toBe(false);
});
