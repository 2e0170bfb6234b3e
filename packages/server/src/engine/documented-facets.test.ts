/** The table of facets in docs/adding-an-engine.md against the interface. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const textOf = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8');

test('the page for a new engine lists its facets, and which of them may be null', () => {
  const [, facets = ''] = /^export interface Engine \{(.*?)^\}/ms.exec(textOf('engine.ts')) ?? [];
  const declared = [...facets.matchAll(/^ {2}readonly (\w+): (.*);$/gm)].map(
    ([, facet = '', type = '']) => [facet, type.endsWith('| null')],
  );
  const page = textOf('../../../../docs/adding-an-engine.md');
  const documented = [...page.matchAll(/^ +\| `(\w+)` \|[^|]*\| ([^|]*)\|$/gm)].map(
    ([, facet = '', mayBeNull = '']) => [facet, mayBeNull.trim() === 'yes'],
  );
  expect(declared.length).toBeGreaterThan(10);
  expect(Object.fromEntries(documented)).toEqual(Object.fromEntries(declared));
});
