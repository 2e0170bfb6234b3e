/**
 * `npm run release-check [-- --from PART | --only PART] [--seed N] [--list]`: gate B, everything
 * that has to hold before a release, as root.
 *
 * A clone of HEAD is tested, so that files may change meanwhile. A part whose files are those of
 * its last green run on this machine is skipped. Each result is kept as soon as the part ends: a
 * run that was interrupted goes on where it was.
 */
import { execFileSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { messageOf } from '@howdah/contract/thrown';
import {
  commitOf,
  fingerprintOf,
  readGreenRuns,
  uncommittedIn,
  writeGreenRun,
} from './green-runs.ts';
import { rememberGreen } from './kubernetes.ts';
import { partsOf, planOf, type Planned } from './parts.ts';
import { ROOT, Steps } from './steps.ts';

const { values } = parseArgs({
  options: {
    from: { type: 'string' },
    only: { type: 'string' },
    seed: { type: 'string' },
    list: { type: 'boolean', default: false },
  },
});
const seed = Number(values.seed ?? randomInt(2 ** 31));
const say = (line: string): void => void process.stdout.write(`${line}\n`);

/** The parts of the plan that are due run in `directory`, a clone. */
async function runPlan(steps: Steps, plan: readonly Planned[], directory: string): Promise<void> {
  for (const { part, green } of plan) {
    if (green !== null) {
      steps.skip(part.name, `skipped, green at ${green}`);
      continue;
    }
    const { tests, isRed } = await steps.step(part, directory);
    const fingerprint = fingerprintOf(directory, part.dependsOn);
    const run = { fingerprint, commit: commitOf(directory), tests };
    writeGreenRun(part.name, isRed ? null : run);
    if (part.name === 'kubernetes' && !isRed) rememberGreen(directory, tests);
  }
}

function planHere(): Planned[] {
  const parts = partsOf(seed).filter(
    ({ name }) => name !== 'planted' || existsSync(`${ROOT}tools/planted`),
  );
  const fingerprints = Object.fromEntries(
    parts.map(({ name, dependsOn }) => [name, fingerprintOf(ROOT, dependsOn)]),
  );
  return planOf(parts, values, readGreenRuns(), fingerprints);
}

function listParts(plan: readonly Planned[]): void {
  const width = Math.max(...plan.map(({ part }) => part.name.length));
  for (const { part, green } of plan)
    say(`${part.name.padEnd(width)}  ${green === null ? 'due' : `green at ${green}`}`);
}

async function checkRelease(steps: Steps, plan: readonly Planned[]): Promise<void> {
  const clone = `${steps.scratch}/howdah`;
  if (plan.some(({ green }) => green === null)) {
    execFileSync('git', ['clone', '--quiet', '--no-hardlinks', ROOT, clone]);
    const prepared = { name: 'build', minutes: 20, command: './howdah --version' };
    if ((await steps.step(prepared, clone)).isRed) return;
  }
  await runPlan(steps, plan, clone);
}

async function main(): Promise<void> {
  const plan = planHere();
  if (values.list) {
    listParts(plan);
    return;
  }
  say(`gate B of ${commitOf(ROOT)}, seed ${seed}`);
  const uncommitted = uncommittedIn(ROOT, ['.']);
  if (uncommitted !== '') say(`NOT tested, since no commit has it:\n${uncommitted}`);
  await Steps.run((steps) => checkRelease(steps, plan));
}

try {
  await main();
} catch (error) {
  process.stderr.write(`${messageOf(error)}\n`);
  process.exitCode = 2;
}
