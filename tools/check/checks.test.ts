import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkCommits, faultsOf } from './commits.ts';
import { findViolations, LAYERS, layerTable } from './layers.ts';
import { functionsIn, tooLong, wideDocumentLines, wideLines } from './lengths.ts';
import { LEADING, missingNames } from './names.ts';
import { exceedingCounts, refusedImports } from './refusals.ts';
import { soleImports } from './sole-importers.ts';

let root = '';
beforeEach(() => void (root = mkdtempSync(join(tmpdir(), 'howdah-checks-'))));
afterEach(() => rmSync(root, { recursive: true }));

function plant(files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}

const git = (...args: string[]) =>
  execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
    cwd: root,
  });

const server = (path: string): string => `packages/server/src/${path}`;
const importOf = (path: string): string => `import { x } from '${path}';\nexport const y = x;\n`;
const X = 'export const x = 1;\n';

describe('layers', () => {
  // One run for all: it takes seconds, and many on a busy machine.
  test('forbidden imports, cycles and files outside of all layers are refused', () => {
    const planted = [
      ['api/a.ts', '../engine/local/b.ts', 'engine/local/b.ts'],
      ['store/a.ts', '../services/b.ts', 'services/b.ts'],
      ['domain/a.ts', '../store/b.ts', 'store/b.ts'],
      ['reconcile/a.ts', '../engine/local/admin/b.ts', 'engine/local/admin/b.ts'],
      ['engine/local/host/a.ts', '../../../store/b.ts', 'store/b.ts'],
      ['lib/a.ts', '../config.ts', 'config.ts'],
    ] as const;
    for (const [from, specifier, to] of planted)
      plant({ [server(from)]: importOf(specifier), [server(to)]: X });
    plant({
      [server('api/allowed.ts')]: importOf('../store/b.ts'),
      [server('store/c.ts')]: "import type { D } from './d.ts';\nexport type C = { d: D };\n",
      [server('store/d.ts')]:
        "import type { C } from './c.ts';\nexport type D = { c: C | null };\n",
      [server('helpers/a.ts')]: importOf('../lib/b.ts'),
      [server('lib/b.ts')]: X,
    });
    const ring = ['c', 'd', 'c'].map((name) => server(`store/${name}.ts`)).join(' → ');
    const outside = `${server('helpers/a.ts')} → ${server('lib/b.ts')}`;
    const edges = planted.map(([from, , to]) => `${server(from)} → ${server(to)}`);
    expect(findViolations(root).map(({ found }) => found)).toEqual(
      [...edges, ring, outside].toSorted(),
    );
  }, 300_000);

  test('a system test that imports from src is refused, its probe is not', () => {
    plant({
      'packages/server/test/probe.ts': importOf('../src/lib/b.ts'),
      'packages/server/test/a.test.ts': importOf('./probe.ts'),
      'packages/server/test/b.test.ts': importOf('../src/lib/b.ts'),
      'packages/cli/test/c.ts': "export type { X } from '../../server/src/lib/b.ts';\n",
      'packages/server/test-kubernetes/d.mjs': "export const d = import('../src/lib/b.ts');\n",
      [server('lib/b.ts')]: `${X}export type X = 1;\n`,
      [server('lib/b.test.ts')]: importOf('./b.ts'),
    });
    const rule = 'in a test folder only a file named probe.ts may import from src';
    const refused = ['cli/test/c.ts', 'server/test-kubernetes/d.mjs', 'server/test/b.test.ts'];
    expect(findViolations(root)).toEqual(
      refused.map((from) => ({ rule, found: `packages/${from} → ${server('lib/b.ts')}` })),
    );
  }, 300_000);

  test('a run that sees no TypeScript is refused, although it saw other modules', () => {
    plant({ [server('lib/a.js')]: X });
    expect(() => findViolations(root)).toThrow('no TypeScript modules found');
  }, 300_000);

  test('the table has a row for each layer, and each row names layers that exist', () => {
    const names = LAYERS.map(({ name }) => name);
    expect(layerTable().split('\n')).toHaveLength(names.length + 2);
    for (const { imports } of LAYERS) expect(names).toEqual(expect.arrayContaining([...imports]));
  });

  test('an exception covers its import and cycles over it, and is refused once unused', () => {
    const violations = [
      { rule: 'imports of api', found: 'a.ts → b.ts' },
      { rule: 'cycle', found: 'c.ts → a.ts → b.ts → c.ts' },
    ];
    expect(refusedImports(violations, { 'a.ts → b.ts': 'why' })).toEqual([]);
    expect(refusedImports(violations, {})).toHaveLength(2);
    expect(refusedImports([], { 'a.ts → b.ts': 'why' })).toEqual([
      expect.stringContaining('no longer an exception'),
    ]);
  });
});

describe('lengths', () => {
  const lines = (count: number): string => '  work();\n'.repeat(count);

  test('a function of 81 lines and a file of 601 are refused', () => {
    const long = `function long() {\n${lines(79)}}\n`;
    expect(tooLong('a.ts', `function short() {\n${lines(78)}}\n`)).toEqual([]);
    expect(tooLong('a.ts', long)).toEqual([{ found: 'a.ts: long', lines: 81 }]);
    expect(tooLong('a.ts', 'work();\n'.repeat(600))).toEqual([]);
    expect(tooLong('a.ts', 'work();\n'.repeat(601))).toEqual([{ found: 'a.ts', lines: 601 }]);
  });

  test('a handler counts, its route declaration does not; nor do JSX and lists of tests', () => {
    const get = `  api.get('/a', {}, async () => {\n${lines(90)}  });\n`;
    const route = `function routes(api) {\n${get}}\n`;
    expect(functionsIn('a.ts', route)).toEqual([
      { name: 'routes', line: 1, lines: 2 },
      { name: 'api.get()', line: 2, lines: 92 },
    ]);
    const page =
      'function Page() {\n  return (\n    <p>\n' +
      `${'      text\n'.repeat(90)}    </p>\n  );\n}\n`;
    expect(functionsIn('a.tsx', page)).toEqual([{ name: 'Page', line: 1, lines: 4 }]);
    const suite = `describe('a', () => {\n  test('b', () => {\n${lines(90)}  });\n});\n`;
    expect(functionsIn('a.test.ts', suite)).toEqual([{ name: 'test "b"', line: 2, lines: 92 }]);
  });

  test('lines over 100 characters are found in sources, over 110 in the text of documents', () => {
    const link = `https://example.com/${'x'.repeat(90)}`;
    const source = `${'x'.repeat(100)}\n${'x'.repeat(101)}\n// ${link}\n`;
    expect(wideLines(source, 100)).toEqual([2]);
    const row = `| ${'x'.repeat(120)} |`;
    expect(wideDocumentLines(`${row}\n${'x'.repeat(110)}\n${'x'.repeat(111)}\n`)).toEqual([3]);
  });

  test('a number above its exception is refused, and so is an exception without a finding', () => {
    const found = new Map([['a.ts', 500]]);
    expect(exceedingCounts(found, { 'a.ts': 500 }, 'lines')).toEqual([]);
    expect(exceedingCounts(found, { 'a.ts': 499 }, 'lines')).toEqual(['a.ts: 500 lines']);
    expect(exceedingCounts(new Map(), { 'a.ts': 500 }, 'lines')).toHaveLength(1);
  });
});

describe('commits', () => {
  const BODY = '\n\nThe reason, and how it was tested.\n';

  test.each(['Add a check', 'Embed the page', 'Process events in order', 'Pass the limit on'])(
    '%s is accepted',
    (subject) => expect(faultsOf(subject + BODY)).toEqual([]),
  );

  test.each([
    `Add ${'x'.repeat(70)}${BODY}`,
    `Added a check${BODY}`,
    `Adding a check${BODY}`,
    `Adds a check${BODY}`,
    `The check is added${BODY}`,
    `add a check${BODY}`,
    `Add a check.${BODY}`,
    'Add a check',
    'Add a check\nThe reason without an empty line.',
    'Add a check\n\nSigned-off-by: nobody',
  ])('%j is refused', (message) => expect(faultsOf(message)).not.toEqual([]));

  test('commits after the main branch are checked, those on it are not', () => {
    const commit = (message: string) => git('commit', '--quiet', '--allow-empty', '-m', message);
    git('init', '--quiet', '--initial-branch', 'main');
    commit('anything');
    expect(checkCommits(root)).toEqual({ base: null, count: 0, faults: [] });
    git('switch', '--quiet', '--create', 'topic');
    commit(`Add a check${BODY}`);
    expect(checkCommits(root)).toEqual({ base: 'main', count: 1, faults: [] });
    commit('added another');
    expect(checkCommits(root).faults).not.toEqual([]);
    git('update-ref', 'refs/remotes/origin/main', 'HEAD');
    expect(checkCommits(root)).toEqual({ base: 'origin/main', count: 0, faults: [] });
  }, 60_000);
});

describe('names', () => {
  const known = {
    files: ['packages/server/src/store/leases.ts', 'tools/debian13/run', 'packages/cli/src/up.ts'],
    words: new Set(['changeService', 'ALLOWED', 'keys', 'claimService']),
    wordsOf: (path: string) => new Set(path.endsWith('leases.ts') ? ['claimService'] : []),
  };

  test('a document may name only files and identifiers that are there', () => {
    const there =
      '`leases.ts`, `store/leases.ts`, `changeService(x)`, `keys`, `npm ci`, `0001_NNNN.sql`';
    expect(missingNames(there, known)).toEqual([]);
    expect(
      missingNames('`eases.ts`\n`api/leases.ts`, `changeServices` and `ALLOW`', known),
    ).toEqual([
      { line: 1, name: 'eases.ts' },
      { line: 2, name: 'api/leases.ts' },
      { line: 2, name: 'changeServices' },
      { line: 2, name: 'ALLOW' },
    ]);
  });

  test('a function in a row of a table is in a file of the row', () => {
    expect(missingNames('| `claimService`, `ALLOWED` | `leases.ts`, `up.ts` |', known)).toEqual([]);
    expect(missingNames('| `claimService` | no file |', known)).toEqual([]);
    expect(missingNames('`claimService` | `up.ts`', known)).toEqual([]);
    expect(missingNames('| `claimService` | `up.ts` |', known)).toEqual([
      { line: 1, name: 'claimService' },
    ]);
  });

  test('pages of folders are checked, and those of users are not', () => {
    const pages = ['packages/server/src/api/README.md', 'docs/adding-a-field.md', 'README.md'];
    expect(pages.filter((page) => LEADING.test(page))).toEqual(pages.slice(0, 2));
  });
});

describe('sole importers', () => {
  const at = (path: string): string => `packages/server/src/${path}`;
  const importBy = (from: string, to: string, isLate = false) => ({
    from: at(from),
    to: at(to),
    isLate,
  });
  const found = (imports: readonly ReturnType<typeof importBy>[], lines = 59, test = 'b.test.ts') =>
    soleImports(['lib/a.ts', 'lib/b.ts', `lib/${test}`].map(at), imports, () => lines);

  test('a short source that one file of its folder imports is reported', () => {
    const sole = [{ path: at('lib/a.ts'), lines: 59, importer: at('lib/b.ts') }];
    const byTest = importBy('lib/b.test.ts', 'lib/a.ts');
    expect(found([importBy('lib/b.ts', 'lib/a.ts'), byTest])).toEqual(sole);
  });

  test('a file of its own by need is not', () => {
    const once = importBy('lib/b.ts', 'lib/a.ts');
    expect(found([once], 60)).toEqual([]);
    expect(found([once], 59, 'a.test.ts')).toEqual([]);
    expect(found([once, importBy('lib/c.ts', 'lib/a.ts')])).toEqual([]);
    expect(found([importBy('store/b.ts', 'lib/a.ts')])).toEqual([]);
    expect(found([importBy('lib/b.ts', 'lib/a.ts', true)])).toEqual([]);
  });
});
