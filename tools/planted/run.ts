/**
 * Measures whether the tests find defects: applies each plant in a scratch clone of HEAD and runs
 * the tests that must turn red. `npm run planted -- [--no-baseline] [NAME…]`
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import {
  applyEdits,
  groupsOf,
  rowOf,
  shortcomings,
  tableOf,
  type Plant,
  type Result,
} from './plant.ts';
import { PLANTS } from './plants.ts';
import { runHints, runProgram } from './vitest.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { 'no-baseline': { type: 'boolean', default: false } },
});

function chosenPlants(names: readonly string[]): readonly Plant[] {
  const unknown = names.filter((name) => !PLANTS.some((plant) => plant.name === name));
  if (unknown.length > 0)
    throw new Error(
      `no such plant: ${unknown.join(', ')}; ` +
        `there are: ${PLANTS.map(({ name }) => name).join(', ')}`,
    );
  return names.length === 0 ? PLANTS : PLANTS.filter(({ name }) => names.includes(name));
}

function runOrThrow(command: string, args: readonly string[], cwd: string): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stdout}${stderr}`);
  return stdout;
}

/** A clone of HEAD with its own node_modules: its links must lead to the packages of the clone. */
function makeClone(scratch: string): void {
  runOrThrow('git', ['clone', '--quiet', '--shared', ROOT, scratch], ROOT);
  const found = ['.', 'packages/*', 'tools/*'].join(' ');
  const directories = runOrThrow('sh', ['-c', `ls -d ${found}`], ROOT)
    .split('\n')
    .map((directory) => join(directory, 'node_modules'))
    .filter((path) => existsSync(join(ROOT, path)) && existsSync(join(scratch, dirname(path))));
  for (const path of directories) {
    // Hard links cost no space; another file system has none.
    const copy = `cp -al "$0" "$1" 2>/dev/null || { rm -rf "$1"; cp -a "$0" "$1"; }`;
    runOrThrow('sh', ['-c', copy, join(ROOT, path), join(scratch, path)], ROOT);
  }
  // Tools write their caches in place, and a hard link would change the original.
  for (const cache of ['.vite', '.vite-temp', '.cache'])
    rmSync(join(scratch, 'node_modules', cache), { recursive: true, force: true });
}

/** @returns the names of the tests that fail without any plant */
async function runBaseline(scratch: string, plants: readonly Plant[]): Promise<string[]> {
  const hints = plants.flatMap(({ caughtBy }) => caughtBy.tests);
  const once = new Map(hints.map((hint) => [JSON.stringify(hint), hint]));
  const { failed, problem } = await runHints(scratch, [...once.values()], 'all');
  return problem === null ? [...failed] : [problem, ...failed];
}

const reader =
  (scratch: string) =>
  (file: string): string =>
    readFileSync(join(scratch, file), 'utf8');

/** Runs some work while files of the clone have other texts. */
async function withTexts<T>(
  scratch: string,
  texts: ReadonlyMap<string, string>,
  work: () => Promise<T>,
): Promise<T> {
  const originals = [...texts.keys()].map((file) => [file, reader(scratch)(file)] as const);
  try {
    for (const [file, text] of texts) writeFileSync(join(scratch, file), text);
    return await work();
  } finally {
    for (const [file, text] of originals) writeFileSync(join(scratch, file), text);
  }
}

/** @returns the errors of the compiler: a defect that it finds says nothing about the tests */
async function compileErrors(scratch: string, plants: readonly Plant[]): Promise<string[]> {
  const errors: string[] = [];
  for (const texts of groupsOf(plants, reader(scratch))) {
    const compile = () => runProgram(scratch, ['npx', 'tsc', '-p', '.']);
    const { stdout } = await withTexts(scratch, texts, compile);
    errors.push(...stdout.split('\n').filter((line) => line !== ''));
  }
  return errors;
}

async function runPlant(scratch: string, plant: Plant): Promise<Result> {
  const beganMs = performance.now();
  const texts = applyEdits(plant, reader(scratch));
  const outcome = await withTexts(scratch, texts, () =>
    runHints(scratch, plant.caughtBy.tests, 'until red'),
  );
  return { plant, ...outcome, seconds: (performance.now() - beganMs) / 1000 };
}

async function runAll(scratch: string, plants: readonly Plant[]): Promise<boolean> {
  makeClone(scratch);
  const errors = await compileErrors(scratch, plants);
  if (errors.length > 0) {
    process.stdout.write(`the compiler finds plants:\n  ${errors.join('\n  ')}\n`);
    return false;
  }
  if (!values['no-baseline']) {
    process.stdout.write('baseline: the tests without a plant\n');
    const red = await runBaseline(scratch, plants);
    if (red.length > 0) {
      process.stdout.write(`red without a plant:\n  ${red.join('\n  ')}\n`);
      return false;
    }
  }
  const results: Result[] = [];
  for (const plant of plants) {
    const result = await runPlant(scratch, plant);
    results.push(result);
    process.stdout.write(`${rowOf(result).join(' | ')}\n`);
  }
  process.stdout.write(`\n${tableOf(results.map(rowOf))}\n\n`);
  const why = shortcomings(results, plants.length === PLANTS.length);
  process.stdout.write(why.length === 0 ? 'the gates are sharp enough\n' : `${why.join('\n')}\n`);
  return why.length === 0;
}

const plants = chosenPlants(positionals);
const scratch = mkdtempSync(join(process.env['TMPDIR'] ?? '/var/tmp', 'howdah-planted-'));
const removeClone = (): void => rmSync(scratch, { recursive: true, force: true });
process.once('SIGINT', () => {
  removeClone();
  process.exit(130);
});
try {
  process.exitCode = (await runAll(scratch, plants)) ? 0 : 1;
} finally {
  removeClone();
}
