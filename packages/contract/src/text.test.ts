import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  escapeInJson,
  inQuotes,
  makeVisible,
  misspelledName,
  nearestName,
  visibleJson,
  PORTABLE_VISIBLE_PATTERN,
  VISIBLE_PATTERN,
  whyNotJson,
} from './text.ts';

const name = new RegExp(VISIBLE_PATTERN, 'u');
const INVISIBLE = [
  '\0',
  '\u0007',
  '\n',
  '\t',
  '\u001b',
  '\u007f',
  '\u0085',
  '\u009b',
  '\u00ad',
  '\u061c',
  '\u200b',
  '\u200d',
  '\u200e',
  '\u200f',
  '\u2028',
  '\u2029',
  '\u202a',
  '\u202b',
  '\u202c',
  '\u202d',
  '\u202e',
  '\u2060',
  '\u2066',
  '\u2067',
  '\u2068',
  '\u2069',
  '\u3164',
  '\ufeff',
  '\ufff9',
  '\u{e0001}',
  '\u{e0041}',
  '\ud800',
  '\udfff',
];

test('a name allows visible characters only', () => {
  for (const character of INVISIBLE)
    expect(name.test(`a${character}b`), JSON.stringify(character)).toBe(false);
  for (const good of [
    'orders',
    'Größe 2',
    '漢字',
    'שלום',
    'مرحبا',
    '🐘',
    '❤️',
    '👍🏽',
    'a"\\\'`$&<>b',
    '',
  ])
    expect(name.test(good), good).toBe(true);
});

test('an invisible character is shown as an escape', () => {
  expect(makeVisible('\u001b]0;owned\u0007\u009b2J\u202eevil\u2066\r')).toBe(
    '\\x1b]0;owned\\x07\\x9b2J\\u202eevil\\u2066\\x0d',
  );
  expect(makeVisible('\u{e0041}\ud800\u2028')).toBe('\\u{e0041}\\ud800\\u2028');
  expect(makeVisible('two\nlines\tand a tab')).toBe('two\nlines\tand a tab');
  expect(makeVisible('👩‍👧 می‌خواهم Größe')).toBe('👩‍👧 می‌خواهم Größe');
});

test('JSON with escapes is equivalent, and contains no control characters', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom(...INVISIBLE)), (text) => {
      const escaped = escapeInJson(JSON.stringify({ [text]: text }));
      expect(JSON.parse(escaped)).toEqual({ [text]: text });
      expect(makeVisible(escaped)).toBe(escaped);
    }),
  );
});

test('invisible characters in strings of JSON are escaped, and nothing else changes', () => {
  const plain = { name: 'orders', count: 1, list: [null, true, 'two\nlines'] };
  expect(visibleJson(JSON.stringify(plain))).toBe(JSON.stringify(plain));
  for (const character of ['\u001b', '\u009b', '\u202e', '\b', '\r'])
    expect(JSON.parse(visibleJson(JSON.stringify({ ...plain, name: character })))).toEqual({
      ...plain,
      name: makeVisible(character),
    });
});

test('JSON that is nested too deep, and lone surrogates, are refused by name', () => {
  const nested = (depth: number): unknown => JSON.parse(`${'['.repeat(depth)}${']'.repeat(depth)}`);
  expect(whyNotJson(nested(32))).toBeNull();
  expect(whyNotJson(nested(34))).toContain('nested more than 32 deep');
  expect(whyNotJson(nested(30_000))).toContain('nested more than 32 deep');
  expect(whyNotJson({ name: 'a\ud800' })).toContain('"a\\ud800": half of a surrogate pair');
  expect(whyNotJson({ '\udc00': 1 })).toContain('half of a surrogate pair');
  expect(whyNotJson({ name: '🐘', more: [1, null, true, { a: 'b' }] })).toBeNull();
});

test('a value in a message is short, quoted and visible', () => {
  expect(inQuotes('a\u202eb')).toBe('"a\\u202eb"');
  expect(inQuotes('x'.repeat(500))).toHaveLength(78);
  expect(inQuotes(undefined)).toBe('nothing');
});

test('a misspelled name is matched to the nearest known name', () => {
  expect(nearestName('Dry_run', ['limit', 'cursor', 'dry_run'])).toBe('dry_run');
  expect(nearestName('dryrun', ['dry_run', 'status'])).toBe('dry_run');
  expect(nearestName('x'.repeat(100_000), ['dry_run'])).toBe('dry_run');
  expect(nearestName('x', [])).toBeNull();
});

test('a name is a misspelling of a known one that differs in at most two letters', () => {
  const known = ['name', 'region_code', 'cpu_millis'];
  for (const [name, meant] of [
    ['nmae', 'name'],
    ['Name', 'name'],
    ['regionCode', 'region_code'],
    ['cpumilli', 'cpu_millis'],
    ['region', null],
    ['cpu', null],
    ['tags', null],
  ] as const)
    expect(misspelledName(name, known), name).toBe(meant);
  expect(misspelledName('x', [])).toBeNull();
});

test('the portable pattern of names refuses the same characters of 16 bits', () => {
  // Without the flag for Unicode, as in other languages: it has no classes.
  const portable = new RegExp(PORTABLE_VISIBLE_PATTERN);
  const differing = Array.from({ length: 0x10000 }, (_, code) => code)
    .filter((code) => code < 0xd800 || code > 0xdfff)
    .map((code) => String.fromCharCode(code))
    .filter((character) => portable.test(character) !== name.test(character));
  expect(differing).toEqual([]);
  expect(portable.test('a 🐘')).toBe(true);
});
