/**
 * `npm run release [-- [--image] [--out DIRECTORY]]`: makes the files of a release from the commit
 * HEAD, in `release/VERSION`; an image too with --image, as root. The same commit gives the same
 * bytes, wherever it is built.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { makeDebianPackage } from './deb.ts';
import { makeRuntimePackages } from './deb-runtime.ts';
import { makeImage } from './image.ts';
import { makeNpmPackage } from './npm.ts';
import type { Source } from './tree.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

const say = (text: string): void => void process.stdout.write(`${text}\n`);

/** Runs a step, and says how long it took. */
async function step<T>(name: string, work: () => Promise<T> | T): Promise<T> {
  const beganMs = performance.now();
  const result = await work();
  say(`✓ ${name} ${((performance.now() - beganMs) / 1000).toFixed(1)} s`);
  return result;
}

const git = (directory: string, ...args: string[]): string =>
  execFileSync('git', ['-C', directory, ...args], { encoding: 'utf8' }).trim();

/** The version of a checkout. @throws Error if the changes of that version are not described */
function versionOf(root: string): string {
  const manifest: unknown = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const version = String(Reflect.get(Object(manifest), 'version'));
  const changes = readFileSync(join(root, 'CHANGELOG.md'), 'utf8');
  if (!changes.split('\n').some((line) => line.startsWith(`## ${version} `)))
    throw new Error(`CHANGELOG.md has no section "## ${version} (DATE)": write it first`);
  return version;
}

/** Builds a checkout of HEAD of its own: neither changes nor packages of this one get in. */
async function checkOut(scratch: string): Promise<Source> {
  const root = join(scratch, 'checkout');
  git(ROOT, 'clone', '--quiet', '--no-hardlinks', ROOT, root);
  const version = versionOf(root);
  const madeAt = new Date(Number(git(root, 'log', '-1', '--format=%ct')) * 1000);
  await step('install packages', () => {
    execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd: root,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  });
  const inputs = await step('build', () => buildIn(root));
  return { root, version, madeAt, inputs };
}

/** The build has paths of its working directory. @returns the files that the bundles are made of */
function buildIn(root: string): string[] {
  const module = pathToFileURL(join(root, 'tools/build/build.js')).href;
  const script = `
    const { buildAll } = await import(${JSON.stringify(module)});
    process.stdout.write(JSON.stringify(await buildAll()));`;
  const printed = execFileSync('node', ['--input-type=module', '--eval', script], {
    cwd: root,
    encoding: 'utf8',
  });
  const parsed: unknown = JSON.parse(printed);
  if (!Array.isArray(parsed)) throw new Error('the build did not say what it is made of');
  return parsed.map(String);
}

/**
 * Makes the directory, or removes an earlier release from it.
 *
 * @throws Error if it has other files
 */
function emptyTarget(target: string): void {
  mkdirSync(target, { recursive: true });
  const present = readdirSync(target);
  if (present.length > 0 && !present.includes('SHA256SUMS'))
    throw new Error(`--out: ${target} has files that are no release; name an empty directory`);
  for (const file of present) rmSync(join(target, file), { recursive: true });
}

function writeChecksums(target: string): void {
  const lines = readdirSync(target)
    .toSorted()
    .map((file) => {
      const hash = createHash('sha256').update(readFileSync(join(target, file)));
      return `${hash.digest('hex')}  ${file}`;
    });
  writeFileSync(join(target, 'SHA256SUMS'), `${lines.join('\n')}\n`);
}

const { values } = parseArgs({
  options: { out: { type: 'string' }, image: { type: 'boolean', default: false } },
});
const scratch = mkdtempSync(join(tmpdir(), 'howdah-release.'));
try {
  const source = await checkOut(scratch);
  const target = resolve(values.out ?? join(ROOT, 'release', source.version));
  emptyTarget(target);
  const directory = (name: string): string => {
    const path = join(scratch, name);
    mkdirSync(path);
    return path;
  };
  await step('package for npm', () => makeNpmPackage(source, target, directory('npm')));
  await step('package for Debian', () => makeDebianPackage(source, target, directory('deb')));
  await step('packages for older releases of Debian', () =>
    makeRuntimePackages(source, target, directory('deb-runtime')),
  );
  if (values.image) await step('image', () => makeImage(source, target, directory('image')));
  await step('checksums', () => writeChecksums(target));
  say(`${target}:\n${readFileSync(join(target, 'SHA256SUMS'), 'utf8')}`);
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
