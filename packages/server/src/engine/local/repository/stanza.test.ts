import { expect, test } from 'vitest';
import { parseFacts } from './stanza.ts';

const FACTS = {
  id: '20260131T120000000Z',
  kind: 'scheduled',
  takenMs: 1_769_860_800_000,
  firstWal: '000000010000000000000003',
  walPosition: '0/3000028',
  storageBytes: 1000,
  template: null,
  systemIdentifier: null,
};
const parse = (facts: object) => parseFacts(JSON.stringify(facts));

test('the facts of a snapshot are those that were written, without its template', () => {
  expect(parse(FACTS)).toEqual(FACTS);
  const initial = { ...FACTS, kind: 'initial', template: 'postgresql-18', systemIdentifier: '7' };
  expect(parse(initial)).toEqual({ ...FACTS, kind: 'initial' });
});

test('an initial snapshot may have no WAL file and no position', () => {
  const initial = { ...FACTS, kind: 'initial', firstWal: '', walPosition: '' };
  expect(parse(initial)).toEqual(initial);
});

test.each<Record<string, unknown>>([
  { id: '../../../etc' },
  { id: '' },
  { id: 'a/b' },
  { id: 'x'.repeat(101) },
  { id: null },
  { firstWal: '../000000010000000000000003' },
  { firstWal: 'x' },
  { firstWal: null },
  { walPosition: 'now' },
  { takenMs: 'soon' },
  { takenMs: 1e300 },
])('%j are no facts of a snapshot', (hostile) => {
  // Hostile facts differ from good ones in this alone.
  expect(parse(FACTS)).not.toBeNull();
  expect(parse({ ...FACTS, ...hostile })).toBeNull();
});

test('a text that is no JSON has no facts', () => {
  for (const text of ['', '{', 'null', '[]', '"x"']) expect(parseFacts(text)).toBeNull();
});
