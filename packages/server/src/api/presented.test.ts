import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { sha256 } from '../lib/secret.ts';
import { parseAuthorization } from './presented.ts';

const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`;

test('Bearer takes the key in one piece, Basic its two halves', () => {
  const key = { publicKey: 'HDabc_-9', secretKey: 's3cr:et' };
  for (const header of [
    'Bearer HDabc_-9:s3cr:et',
    'bearer HDabc_-9:s3cr:et',
    'BEARER   HDabc_-9:s3cr:et  ',
    basic('HDabc_-9:s3cr:et'),
  ])
    expect(parseAuthorization(header), header).toEqual(key);
  expect(parseAuthorization(basic('HDabc_-9:s3cr:et').replace('Basic', 'basic'))).toEqual(key);
  expect(parseAuthorization('Bearer a:')).toEqual({ publicKey: 'a', secretKey: '' });
});

test('a header without a valid key has no key', () => {
  const none = [
    undefined,
    '',
    'Bearer',
    'Bearer ',
    'Bearer :secret',
    'Bearer nocolon',
    'Bearer a b:c',
    'Bearera:b',
    'Token a:b',
    'Digest a:b',
    basic('nocolon'),
    basic(':secret'),
    basic('a\0b:c'),
    basic("x' or '1'='1:c"),
    'Basic !!!!',
    `Bearer ${'a'.repeat(65)}:b`,
    'Bearer ä:b',
  ];
  for (const header of none) expect(parseAuthorization(header), String(header)).toBeNull();
});

test('no header makes it throw, and what it finds is safe to look for', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.string({ unit: 'binary' }).map(basic),
        fc.string().map((text) => `Bearer ${text}`),
      ),
      (header) => {
        const parsed = parseAuthorization(header);
        if (parsed !== null) expect(parsed.publicKey).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
      },
    ),
  );
});

test('a secret is stored as its SHA-256', () => {
  expect(sha256('abc').toString('hex')).toBe(
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  );
});
