// Bundles the web console: one page, its scripts and styles under names that
// change with what is in them.
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { build } from 'esbuild';

const source = 'packages/console/src';
const target = 'packages/console/dist';

/** Builds `packages/console/dist`. @returns the paths of all files that it is made of */
export async function buildConsole() {
  await rm(target, { recursive: true, force: true });
  await mkdir(target, { recursive: true });
  const { metafile } = await build({
    entryPoints: { console: `${source}/main.tsx`, theme: `${source}/theme-first.ts` },
    outdir: `${target}/assets`,
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    target: ['chrome111', 'firefox115', 'safari16.4'],
    minify: true,
    jsx: 'automatic',
    define: { 'process.env.NODE_ENV': '"production"' },
    metafile: true,
    logLevel: 'warning',
  });
  const outputs = Object.entries(metafile.outputs);
  const script = (name) =>
    outputs.find(([, { entryPoint }]) => entryPoint === `${source}/${name}`)?.[1];
  const nameOf = (entry) => basename(outputs.find(([, candidate]) => candidate === entry)[0]);
  const main = script('main.tsx');
  const chunks = [
    ...new Set(
      main.imports
        .filter(({ kind }) => kind === 'import-statement')
        .map(({ path }) => basename(path)),
    ),
  ];
  // All styles are in the page's own bundle; those that go with the other chunks nobody would load.
  const late = outputs.flatMap(([path]) =>
    path.endsWith('.css') && path !== main.cssBundle ? [path] : [],
  );
  await Promise.all(late.map((path) => rm(path)));
  const page = await readFile(`${source}/index.html`, 'utf8');
  await writeFile(
    `${target}/index.html`,
    page
      .replace('%STYLE%', basename(main.cssBundle))
      .replace('%THEME%', nameOf(script('theme-first.ts')))
      .replace('%SCRIPT%', nameOf(main))
      .replace(
        '%CHUNKS%',
        chunks
          .map((chunk) => `<link rel="modulepreload" href="/assets/${chunk}" />`)
          .join('\n    '),
      ),
  );
  return Object.keys(metafile.inputs);
}
