/** Runs tests in a clone, and reads which of them failed. */
import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isSystemTest, type TestHint } from './plant.ts';

/** The tests that failed; problem: why no result could be had, which is no finding of a test. */
export type Outcome = { readonly failed: readonly string[]; readonly problem: string | null };

type Assertion = { fullName: string; status: string };
type Report = {
  testResults: { name: string; status: string; message: string; assertionResults: Assertion[] }[];
};

/**
 * Runs a program, whatever its exit code. The caller goes on meanwhile, so that Ctrl-C is noticed.
 */
export function runProgram(
  clone: string,
  [command, ...args]: readonly [string, ...string[]],
  env: NodeJS.ProcessEnv = process.env,
): Promise<{ isOk: boolean; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(command, args, { cwd: clone, env, maxBuffer: 1 << 28 }, (error, stdout, stderr) =>
      resolve({ isOk: error === null, stdout, stderr }),
    );
  });
}

/**
 * A test that waits for what a defect prevents fails after these, and not after the generous
 * deadlines of the gates. The baseline runs with them too.
 */
const DEADLINES_MS = {
  unit: { test: 20_000, poll: 10_000 },
  system: { test: 300_000, poll: 120_000 },
} as const;

/** After so many failed tests the others are not run. */
const BAIL = 3;

/**
 * Runs the unit tests first.
 *
 * @param until 'red' ends with the first project or file that has failed tests
 */
export async function runHints(
  clone: string,
  hints: readonly TestHint[],
  until: 'until red' | 'all',
): Promise<Outcome> {
  const units = hints.filter((hint) => !isSystemTest(hint)).map(({ file }) => file);
  const systems = hints.filter(isSystemTest);
  const outcomes = [];
  if (units.length > 0) outcomes.push(await runVitest(clone, 'unit', units, null));
  for (const [index, { file, name }] of systems.entries()) {
    if (until === 'until red' && outcomes.some(isConclusive)) break;
    const broken = index === 0 ? await build(clone) : null;
    outcomes.push(broken ?? (await runVitest(clone, 'system', [file], name ?? null)));
  }
  return {
    failed: outcomes.flatMap(({ failed }) => failed),
    problem: outcomes.find(({ problem }) => problem !== null)?.problem ?? null,
  };
}

const isConclusive = ({ failed, problem }: Outcome): boolean =>
  failed.length > 0 || problem !== null;

/** System tests run the bundle. @returns null: it is built */
async function build(clone: string): Promise<Outcome | null> {
  const { isOk, stderr } = await runProgram(clone, ['node', 'tools/build/build.js']);
  return isOk ? null : { failed: [], problem: `it does not build: ${firstLine(stderr)}` };
}

async function runVitest(
  clone: string,
  project: keyof typeof DEADLINES_MS,
  files: readonly string[],
  name: string | null,
): Promise<Outcome> {
  const output = join(clone, 'planted-report.json');
  rmSync(output, { force: true });
  const { test, poll } = DEADLINES_MS[project];
  const command = [
    'npx',
    'vitest',
    'run',
    `--project=${project}`,
    '--reporter=json',
    `--outputFile=${output}`,
    `--bail=${BAIL}`,
    `--testTimeout=${test}`,
    `--expect.poll.timeout=${poll}`,
    ...(name === null ? [] : ['-t', name]),
    ...files,
  ] as const;
  // A test of the product would otherwise install packages.
  const env = { HOWDAH_INSTALL: 'no', ...process.env };
  const { stderr } = await runProgram(clone, command, env);
  return outcomeOf(readReport(output), stderr, files);
}

function readReport(path: string): Report | null {
  try {
    const report: Report = JSON.parse(readFileSync(path, 'utf8'));
    return report;
  } catch {
    return null;
  }
}

/** The meaning of a report; null: vitest has written none. */
export function outcomeOf(
  report: Report | null,
  stderr: string,
  files: readonly string[],
): Outcome {
  if (report === null) return { failed: [], problem: `vitest ended: ${firstLine(stderr)}` };
  const tests = report.testResults.flatMap(({ assertionResults }) => assertionResults);
  const failed = tests.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName);
  const ran = tests.filter(({ status }) => status === 'passed' || status === 'failed').length;
  // A failed hook fails the file, and leaves its tests without a result.
  const broken = report.testResults.find(
    ({ status, assertionResults }) =>
      status === 'failed' && assertionResults.every(({ status: one }) => one !== 'failed'),
  );
  if (failed.length > 0) return { failed, problem: null };
  if (broken !== undefined)
    return broken.assertionResults.length > 0
      ? { failed: [`before the tests: ${firstLine(broken.message)}`], problem: null }
      : { failed: [], problem: `${broken.name} cannot be loaded: ${firstLine(broken.message)}` };
  return { failed, problem: ran === 0 ? `no test ran of ${files.join(', ')}` : null };
}

const firstLine = (text: string): string => text.trim().split('\n')[0] ?? '';
