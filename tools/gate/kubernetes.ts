/**
 * Whether gate A has to test Kubernetes. A clean clone does not have the commit that was landed
 * before, so a committed file has the fingerprint of the last green run.
 *
 * `npx tsx tools/gate/kubernetes.ts --record` writes that file after a green run on this machine.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { messageOf } from '@howdah/contract/thrown';
import {
  commitOf,
  fingerprintOf,
  readGreenRuns,
  uncommittedIn,
  writeGreenRun,
} from './green-runs.ts';
import type { Totals } from './report.ts';
import { ROOT } from './steps.ts';

/** The name of a green run of these tests or of more. */
const GREEN_RUN = 'kubernetes-sample';
export const KUBERNETES_PATHS = [
  'packages/server/src/engine/kubernetes',
  'packages/server/src/engine/conformance',
  'packages/server/test-kubernetes',
  'tools/kube-rig',
];
const RECORD = 'tools/gate/kubernetes.green';
export const RECORD_COMMAND = 'npx tsx tools/gate/kubernetes.ts --record';

/** @returns whether these files are those of the last green run that is committed */
export function isRecorded(root: string): boolean {
  if (uncommittedIn(root, KUBERNETES_PATHS) !== '') return false;
  return readRecord(root) === fingerprintOf(root, KUBERNETES_PATHS);
}

function readRecord(root: string): string | null {
  try {
    return readFileSync(`${root}/${RECORD}`, 'utf8').trim();
  } catch {
    return null;
  }
}

/** Remembers a green run on this machine, which `--record` asks for. */
export function rememberGreen(root: string, tests: Totals | null): void {
  const fingerprint = fingerprintOf(root, KUBERNETES_PATHS);
  writeGreenRun(GREEN_RUN, { fingerprint, commit: commitOf(root), tests });
}

/** @returns what to print. @throws Error without a green run of these files on this machine */
function record(root: string): string {
  const changes = uncommittedIn(root, KUBERNETES_PATHS);
  if (changes !== '') throw new Error(`commit these changes first, and run the tests:\n${changes}`);
  const fingerprint = fingerprintOf(root, KUBERNETES_PATHS);
  if (readRecord(root) === fingerprint) return `${RECORD} has these files already`;
  const run = readGreenRuns()[GREEN_RUN];
  if (run?.fingerprint !== fingerprint)
    throw new Error(`no green run of ${fingerprint} on this machine: run .ci/run first`);
  writeFileSync(`${root}/${RECORD}`, `${fingerprint}\n`);
  return `${RECORD}: green at ${run.commit}; commit it`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    process.stdout.write(`${record(ROOT)}\n`);
  } catch (error) {
    process.stderr.write(`${messageOf(error)}\n`);
    process.exitCode = 1;
  }
}
