/**
 * `./howdah test`: vitest, with its arguments. Files with system tests that failed run once more,
 * alone, after the others: `retry` of vitest would run the tests at once, beside the others. Whole
 * files, since a test may build on those before it in its file.
 */
import {
  createVitest,
  parseCLI,
  type Reporter,
  type TestCase,
  type TestModule,
  type TestSpecification,
  type TestSuite,
} from 'vitest/node';
import { loadNow } from './load.ts';
import { MAX_RUN_AGAIN, verdictOf, type Failure } from './verdict.ts';

/** A unit test waits for nothing, and all of Kubernetes is one file, which runs alone already. */
const RUN_AGAIN: readonly string[] = ['system', 'repositories'];

/** The load when each test, suite or file failed. */
class FailureLoads implements Reporter {
  readonly #loads = new Map<string, string>();

  onTestCaseResult(test: TestCase): void {
    if (test.result().state === 'failed') this.#add(test.id);
  }

  onTestSuiteResult(suite: TestSuite): void {
    if (suite.errors().length > 0) this.#add(suite.id);
  }

  onTestModuleEnd(module: TestModule): void {
    if (hasOwnErrors(module)) this.#add(module.id);
  }

  of(id: string): string {
    return this.#loads.get(id) ?? 'load unknown';
  }

  #add(id: string): void {
    if (!this.#loads.has(id)) this.#loads.set(id, loadNow());
  }
}

/** Whether hooks or imports failed, so that tests did not run that would have. */
function hasOwnErrors(module: TestModule): boolean {
  return [module, ...module.children.allSuites()].some((suite) => suite.errors().length > 0);
}

/** The parts of a file that failed: all of it, or single tests. */
type Failed = Readonly<{ module: TestModule; tests: readonly TestCase[] | null }>;

const failedTests = (module: TestModule): TestCase[] => [...module.children.allTests('failed')];

function failedIn(modules: readonly TestModule[]): Failed[] {
  return modules.flatMap((module): Failed[] => {
    if (hasOwnErrors(module)) return [{ module, tests: null }];
    const tests = failedTests(module);
    return tests.length === 0 ? [] : [{ module, tests }];
  });
}

const nameOf = (module: TestModule, test?: TestCase): string =>
  test === undefined
    ? `${module.relativeModuleId} (its hooks or imports)`
    : `${module.relativeModuleId} > ${test.fullName}`;

const say = (line: string): void => void process.stdout.write(`${line}\n`);

/** @returns the file after this run, undefined if there were errors outside of its tests */
async function runAlone(specification: TestSpecification): Promise<TestModule | undefined> {
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications([specification]);
  if (unhandledErrors.length > 0) return undefined;
  return testModules.find(
    ({ moduleId, project }) =>
      moduleId === specification.moduleId && project === specification.project,
  );
}

/** Runs a file with failures once more, unless they are too many or no system tests. */
async function judge({ module, tests }: Failed, isRunAgain: boolean): Promise<Failure[]> {
  const parts = tests?.map((test) => ({ id: test.id, name: nameOf(module, test) })) ?? [
    { id: module.id, name: nameOf(module) },
  ];
  const file = module.relativeModuleId;
  const failures = parts.map((part) => ({ ...part, file, load: loads.of(part.id) }));
  if (!isRunAgain) return failures.map((failure) => ({ ...failure, alone: 'not run' as const }));
  say(`\n######## Once more, alone, for ${parts.map(({ name }) => name).join(', ')}`);
  const again = await runAlone(module.toTestSpecification());
  const failedAgain = again === undefined ? [] : failedTests(again).map(({ id }) => id);
  const isBroken = again === undefined || hasOwnErrors(again) || (tests === null && !again.ok());
  return failures.map((failure) => ({
    ...failure,
    alone: isBroken || failedAgain.includes(failure.id) ? ('failed' as const) : ('passed' as const),
  }));
}

const { filter, options } = parseCLI(['vitest', 'run', ...process.argv.slice(2)]);
// A filter FILE:LINE needs it, as in vitest's own command line.
if (filter.some((path) => path.includes(':'))) options.includeTaskLocation = true;
const loads = new FailureLoads();
const vitest = await createVitest('test', options, {
  // Added to the reporters of vitest.config.ts.
  plugins: [{ name: 'failure-loads', config: () => ({ test: { reporters: [loads] } }) }],
});
try {
  const { testModules, unhandledErrors } = await vitest.start(filter);
  const all = testModules.flatMap((module) => [...module.children.allTests()]);
  const [passed, skipped] = (['passed', 'skipped'] as const).map(
    (state) => all.filter((test) => test.result().state === state).length,
  );
  const failed = failedIn(testModules);
  const count = failed.reduce((sum, { tests }) => sum + (tests?.length ?? 1), 0);
  const failures: Failure[] = [];
  for (const part of failed) {
    const isRunAgain = RUN_AGAIN.includes(part.module.project.name) && count <= MAX_RUN_AGAIN;
    failures.push(...(await judge(part, isRunAgain)));
  }
  const errors = unhandledErrors.length;
  const verdict = verdictOf({ passed: passed ?? 0, skipped: skipped ?? 0, failures, errors });
  say(`\n${verdict.lines.join('\n')}`);
  process.exitCode = verdict.isGreen ? 0 : 1;
} catch (error) {
  // vitest has said that no file matches, and has set the exit code.
  if (!(error instanceof Error && 'code' in error && error.code === 'VITEST_FILES_NOT_FOUND'))
    throw error;
} finally {
  const status = process.exitCode;
  process.exitCode = 0;
  // Not `vitest.exit()`, which gives up after a time, in green: this checks and ends the
  // installations that files have shared, and sets the exit code when that fails.
  const codeOfEnd = await vitest.close().then(() => process.exitCode);
  if (codeOfEnd === 0) process.exitCode = status;
  // Something that was left open keeps no run from its end.
  setTimeout(() => process.exit(), 60_000).unref();
}
