// Compiles the client to what is published, a package by itself: client.js [DIRECTORY, else
// packages/client/dist]
import { spawnSync } from 'node:child_process';
import { copyFile, readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const client = fileURLToPath(new URL('../../packages/client/', import.meta.url));
const tsc = fileURLToPath(new URL('../../node_modules/.bin/tsc', import.meta.url));

const target = process.argv[2] ?? `${client}dist`;

await rm(target, { recursive: true, force: true });
const { status } = spawnSync(tsc, ['-p', `${client}tsconfig.build.json`, '--outDir', target], {
  stdio: 'inherit',
});
if (status !== 0) process.exit(1);
const { name, version, description, type, license, engines, dependencies } = JSON.parse(
  await readFile(`${client}package.json`, 'utf8'),
);
const entry = (file) => ({ types: `./${file}.d.ts`, default: `./${file}.js` });
const published = {
  name,
  version,
  description,
  license,
  type,
  engines,
  exports: { '.': entry('index'), './node': entry('node') },
  dependencies,
};
await writeFile(`${target}/package.json`, `${JSON.stringify(published, null, 2)}\n`);
await Promise.all([
  copyFile(`${client}README.md`, `${target}/README.md`),
  copyFile(`${client}../../LICENSE`, `${target}/LICENSE`),
]);
