/**
 * Prints the tests that run for minutes, and at the end the tests that were left out and the disk
 * space that the run took. Failed tests that run once more are another run, with nothing left out.
 */
import { statfsSync } from 'node:fs';
import type { Reporter, TestCase, TestModule, Vitest } from 'vitest/node';

const SAMPLE_EVERY_MS = 1000;
/** A run that is ended from outside has then named what it waited for. */
const NAME_RUNNING_EVERY_MS = 300_000;

function usedBytes(path: string): number {
  const { blocks, bfree, bsize } = statfsSync(path);
  return (blocks - bfree) * bsize;
}

export class Summary implements Reporter {
  readonly #directory: string;
  #usedBefore = 0;
  #mostUsed = 0;
  #sampler: NodeJS.Timeout | undefined;
  #namer: NodeJS.Timeout | undefined;
  /** When each test began that has not ended. */
  readonly #running = new Map<TestCase, number>();
  #tagsFilter: readonly string[] = [];
  #isFirstRun = true;

  constructor(directory: string) {
    this.#directory = directory;
  }

  onInit(vitest: Vitest): void {
    this.#tagsFilter = vitest.config.tagsFilter ?? [];
  }

  onTestRunStart(): void {
    this.#usedBefore = usedBytes(this.#directory);
    this.#mostUsed = this.#usedBefore;
    this.#sampler = setInterval(() => {
      this.#mostUsed = Math.max(this.#mostUsed, usedBytes(this.#directory));
    }, SAMPLE_EVERY_MS);
    this.#namer = setInterval(() => this.#nameRunning(), NAME_RUNNING_EVERY_MS);
  }

  onTestCaseReady(test: TestCase): void {
    this.#running.set(test, Date.now());
  }

  onTestCaseResult(test: TestCase): void {
    this.#running.delete(test);
  }

  #nameRunning(): void {
    for (const [test, beganMs] of this.#running) {
      const seconds = Math.round((Date.now() - beganMs) / 1000);
      if (seconds * 1000 >= NAME_RUNNING_EVERY_MS)
        process.stdout.write(
          `running for ${seconds} s: ${test.module.relativeModuleId} > ${test.fullName}\n`,
        );
    }
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    clearInterval(this.#sampler);
    clearInterval(this.#namer);
    const lines = this.#isFirstRun && this.#tagsFilter.includes('!slow') ? leftOut(modules) : [];
    this.#isFirstRun = false;
    const gigabytes = ((this.#mostUsed - this.#usedBefore) / 1e9).toFixed(1);
    lines.push(
      `At most ${gigabytes} GB more than before were used on the disk of ${this.#directory}.`,
    );
    process.stdout.write(`${lines.join('\n')}\n\n`);
  }
}

function leftOut(modules: readonly TestModule[]): string[] {
  const counts = modules
    .map((module) => ({
      name: module.relativeModuleId,
      tests: [...module.children.allTests()].filter(({ tags }) => tags.includes('slow')).length,
    }))
    .filter(({ tests }) => tests > 0)
    .toSorted((a, b) => a.name.localeCompare(b.name));
  if (counts.length === 0) return [];
  const total = counts.reduce((sum, { tests }) => sum + tests, 0);
  return [
    `Left to ./howdah test --all: ${total} tests in ${counts.length} files`,
    ...counts.map(({ name, tests }) => `  ${String(tests).padStart(3)}  ${name}`),
    '',
  ];
}
