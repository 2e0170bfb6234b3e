/** Writes the report of `accept`: report.ts VERSION RESULTS, where RESULTS is Vitest's JSON. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { realPluginFiles } from './real-operator.ts';

const RESULTS = Type.Object({
  startTime: Type.Number(),
  testResults: Type.Array(
    Type.Object({
      assertionResults: Type.Array(
        Type.Object({
          fullName: Type.String(),
          status: Type.String(),
          duration: Type.Optional(Type.Union([Type.Null(), Type.Number()])),
          failureMessages: Type.Array(Type.String()),
        }),
      ),
    }),
  ),
});

const [version = '', path = ''] = process.argv.slice(2);
const parsed: unknown = JSON.parse(readFileSync(path, 'utf8'));
if (!Value.Check(RESULTS, parsed)) throw new Error(`${path} is not the JSON of Vitest`);
const tests = parsed.testResults.flatMap(({ assertionResults }) => assertionResults);
const having = (status: string) => tests.filter((one) => one.status === status);
const commit = execFileSync('git', ['rev-parse', '--short=12', 'HEAD'], { encoding: 'utf8' });
const date = new Date(parsed.startTime).toISOString().slice(0, 10);

/** The first line of an error, as far as it fits. */
const WIDTH = 100;
const reasonOf = (messages: readonly string[]): string =>
  (messages[0] ?? '').split('\n', 1)[0]?.slice(0, WIDTH) ?? '';

const lines = [
  `# CloudNativePG ${version}, run on ${date}`,
  '',
  'The tests of regions on Kubernetes, with the operator of CloudNativePG in place of its double:',
  '`tools/kube-rig/accept`. The node is that of `tools/kube-rig`, ' +
    'with Kubernetes 1.36.3 and PostgreSQL 17.',
  `Commit ${commit.trim()}. The operator had no limit of its CPU time.`,
  ...(realPluginFiles === null ? [] : ['With the Barman Cloud plugin.']),
  '',
  `${having('passed').length} passed, ${having('failed').length} failed.`,
  ...section(
    'Failed',
    having('failed').flatMap(({ fullName, failureMessages }) => [
      `- ${fullName}`,
      `  ${reasonOf(failureMessages)}`,
    ]),
  ),
  ...section(
    'Passed, with their seconds',
    having('passed').map(({ fullName, duration }) => {
      const seconds = ((duration ?? 0) / 1000).toFixed(1);
      return `- ${fullName}: ${seconds}`;
    }),
  ),
  ...section(
    'Not run: what needs faults of the operator, which only the double can have, or the plugin',
    having('skipped').map(({ fullName }) => `- ${fullName}`),
  ),
];
process.stdout.write(`${lines.join('\n')}\n`);

function section(title: string, entries: readonly string[]): string[] {
  return entries.length === 0 ? [] : ['', `## ${title}`, '', ...entries];
}
