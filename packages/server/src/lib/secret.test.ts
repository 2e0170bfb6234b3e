import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { createSealer, isSecret, sha256 } from './secret.ts';

test('a secret is compared with its SHA-256', () => {
  expect(sha256('abc').toString('hex')).toBe(
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  );
  expect(isSecret('abc', sha256('abc'))).toBe(true);
  expect(isSecret('abd', sha256('abc'))).toBe(false);
  expect(isSecret('', Buffer.alloc(32))).toBe(false);
});

test('a sealed text is opened with the same two keys, and with no others', () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.string({ unit: 'binary' }), (name, secret, text) => {
      const sealed = createSealer(name, secret).seal(text);
      expect(createSealer(name, secret).open(sealed)).toBe(text);
      expect(() => createSealer(`${name}x`, secret).open(sealed)).toThrow();
      expect(() => createSealer(name, `${secret}x`).open(sealed)).toThrow();
      const damaged = Buffer.from(sealed);
      damaged[damaged.length - 1] = (damaged.at(-1) ?? 0) ^ 1;
      expect(() => createSealer(name, secret).open(damaged)).toThrow();
    }),
    { numRuns: 50 },
  );
});

test('the same is found again, but looks like nothing', () => {
  const [one, same, other] = [
    createSealer('name', 'secret'),
    createSealer('name', 'secret'),
    createSealer('name', 'other'),
  ];
  expect(one.lookup).toEqual(same.lookup);
  expect(one.lookup).not.toEqual(other.lookup);
  expect(one.mac('x')).toEqual(same.mac('x'));
  expect(one.mac('x')).not.toEqual(other.mac('x'));
  expect(one.mac('name')).not.toEqual(one.lookup);
  // The whole call counts, not only its path.
  expect(one.mac('POST /services {}')).not.toEqual(one.mac('POST /services {"name":"a"}'));
  expect(one.seal('x')).not.toEqual(one.seal('x'));
});
