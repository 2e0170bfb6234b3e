/** Gate A, after `.ci/run` has installed and built: what has to hold for every commit, as root. */
import { isRecorded, RECORD_COMMAND, rememberGreen } from './kubernetes.ts';
import { ROOT, Steps, type Step } from './steps.ts';

const DEBIAN = 'tools/debian13/run';
const KUBERNETES: Step = {
  name: 'Kubernetes: conformance and journey',
  minutes: 45,
  command:
    'tools/kube-rig/run npx vitest run --project kubernetes ' +
    `--tags-filter='(promise or journey) and !slow'`,
};
/** `npm run check` has run the unit tests when the others run. */
const SYSTEM_TESTS = `${DEBIAN} ./howdah test --project=system`;
const TOUR = 'tools/debian13/tour.sh';
const STEPS: readonly Step[] = [
  { name: 'npm run check', minutes: 20, command: 'npm run check' },
  { name: 'a fresh Debian 13', minutes: 10, command: `${DEBIAN} true` },
  { name: 'Debian 13, root: ./howdah test', minutes: 60, command: SYSTEM_TESTS },
  { name: 'Debian 13, root: the tour', minutes: 10, command: `${DEBIAN} ${TOUR}` },
  {
    name: 'Debian 13, a plain user: the tour',
    minutes: 10,
    command: `${DEBIAN} --user dev ${TOUR}`,
  },
];

async function testKubernetes(steps: Steps): Promise<void> {
  if (isRecorded(ROOT)) {
    steps.skip(KUBERNETES.name, 'unchanged since its last green run');
    return;
  }
  const { tests, isRed } = await steps.step(KUBERNETES);
  if (isRed) return;
  rememberGreen(ROOT, tests);
  steps.notes.push(`to skip Kubernetes until its files change: ${RECORD_COMMAND}`);
}

await Steps.run(async (steps) => {
  const seconds = Number(process.argv[2] ?? 0);
  steps.rows.push({ name: './howdah --version', tests: null, seconds, result: 'ok', isRed: false });
  for (const step of STEPS) await steps.step(step);
  await testKubernetes(steps);
});
