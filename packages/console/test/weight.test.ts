import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';

const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
/** The limit for a first visit, compressed. */
const MOST_BYTES = 256_000;

test('the first load weighs at most 256 kB, and names nothing that is elsewhere', async () => {
  const page = await readFile(`${DIST}index.html`, 'utf8');
  const names = [...page.matchAll(/"\/assets\/([^"]+)"/g)].flatMap(([, name]) =>
    name === undefined ? [] : [name],
  );
  const files = await withImports(names);
  const sizes = await Promise.all(
    files.map(async (name) => ({
      name,
      bytes: gzipSync(await readFile(`${DIST}assets/${name}`)).length,
    })),
  );
  const total = sizes.reduce((sum, { bytes }) => sum + bytes, gzipSync(page).length);
  expect(sizes.some(({ name }) => name.endsWith('.css'))).toBe(true);
  expect(sizes.some(({ name }) => name.startsWith('console-') && name.endsWith('.js'))).toBe(true);
  expect(total, JSON.stringify(sizes)).toBeLessThanOrEqual(MOST_BYTES);
  // Files that the page does not preload would be requested one after the other.
  expect(files.toSorted()).toEqual(names.toSorted());
  expect(page.match(/https?:\/\/(?!www\.w3\.org\/2000\/svg)/g)).toBeNull();
});

/** Scripts, and what they import before they run, whatever the depth. */
async function withImports(names: readonly string[]): Promise<string[]> {
  const all = new Set(names);
  for (const name of all) {
    if (!name.endsWith('.js')) continue;
    const source = await readFile(`${DIST}assets/${name}`, 'utf8');
    for (const [, imported] of source.matchAll(/(?:from|import)"\.\/([^"]+\.js)"/g))
      if (imported !== undefined) all.add(imported);
  }
  return [...all];
}
