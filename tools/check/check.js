// Everything that is checked without starting a database: format, lint, types, generated files,
// unused code, unit tests. Runs all of them and says which failed.
import { spawnSync } from 'node:child_process';

const CHECKS = [
  ['words', 'tsx', ['tools/check/walls.ts', 'words']],
  ['references', 'node', ['tools/check/references.js']],
  ['names', 'tsx', ['tools/check/walls.ts', 'names']],
  ['layers', 'tsx', ['tools/check/walls.ts', 'layers']],
  ['lengths', 'tsx', ['tools/check/walls.ts', 'lengths']],
  ['unused code', 'knip', ['--no-progress', '--treat-config-hints-as-errors']],
  ['commits', 'tsx', ['tools/check/walls.ts', 'commits']],
  ['format', 'oxfmt', ['--check', '.']],
  ['lint', 'oxlint', ['--type-aware', '--deny-warnings', '.']],
  ['types', 'tsc', ['-p', '.']],
  ['types of the console', 'tsc', ['-p', 'packages/console']],
  [
    'generated files',
    'npm',
    ['run', '--silent', 'generate', '-w', '@howdah/codegen', '--', '--check'],
  ],
  ['unit tests', 'vitest', ['run', '--project', 'unit']],
];

const failed = [];
for (const [name, command, args] of CHECKS) {
  const begun = performance.now();
  const { status } = spawnSync(command, args, { stdio: 'inherit' });
  const seconds = ((performance.now() - begun) / 1000).toFixed(1);
  process.stdout.write(`${status === 0 ? 'ok    ' : 'FAILED'} ${String(name)} (${seconds} s)\n`);
  if (status !== 0) failed.push(name);
}
if (failed.length > 0) {
  process.stdout.write(`failed: ${failed.join(', ')}\n`);
  process.exitCode = 1;
}
