import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { GLOSSARY, rulesOf, wordsIn } from './words.ts';

const glossary = readFileSync(GLOSSARY, 'utf8');
const rules = rulesOf(glossary);
const LOCAL = 'packages/server/src/engine/local/host/a.ts';
const API = 'packages/server/src/api/errors.ts';

const found = (path: string, source: string): string[] =>
  wordsIn(path, source, rules).map(({ line, word }) => `${line}: ${word}`);

describe('words', () => {
  test.each([
    ['everywhere', 'a.ts', `const x = 'a torn file';`, '1: torn'],
    ['everywhere', 'a.ts', 'export const x = 1;\nexport const tornFiles = 2;', '2: torn'],
    ['everywhere', 'a.sql', 'create table strangers ();', '1: strangers'],
    ['everywhere', 'a.sh', 'echo shall', '1: shall'],
    ['identifiers', 'a.ts', 'export function handsOf() {}', '1: hands'],
    ['identifiers', 'a.ts', 'type A = { isCalm: boolean };', '1: calm'],
    ['identifiers', 'packages/server/src/a.ts', 'const memberOf = 1;', '1: member'],
    ['identifiers', 'packages/server/src/a.ts', 'const { a: [member = 1] } = b;', '1: member'],
    ['identifiers', 'packages/server/src/a.ts', 'f((member) => 1);', '1: member'],
    ['identifiers', 'packages/server/src/members.ts', '', '1: members'],
    ['identifiers', LOCAL, 'export function auditAll() {}', '1: audit'],
    ['prose', 'a.ts', '/** It tells\n * nothing. */', '1: tells'],
    ['prose', 'a.ts', '// one line,\n// and what was told', '2: told'],
    ['prose', 'a.ts', '/** Short. Whoever asks. */', '1: Whoever'],
    ['prose', 'a.ts', '/** A set.\n * Of one that is gone, nothing. */', '2: Of'],
    ['prose', LOCAL, '// reads the log', '1: the log'],
    ['prose', 'README.md', '# A\n\nFirst the\nstore is mounted.', '3: the store'],
    ['prose', 'README.md', '| a | one look |\n', '1: one look'],
    ['prose', 'a.sql', '-- What is kept', '1: What'],
    ['prose', 'howdah', '# What is kept', '1: What'],
    ['prose', 'a.go', '// What is kept', '1: What'],
    ['comments', 'a.ts', '/** A size. */\n/**\n * Its disk.\n */', '3: Its'],
    ['comments', 'a.ts', 'f(); // They wait', '1: They'],
    ['comments', 'a.tsx', '<p>{/* It is empty. */}</p>', '1: It'],
    ['comments', 'a.sql', '-- Their number', '1: Their'],
    ['comments', 'howdah', '  # It ends', '1: It'],
    ['user messages', API, `throw new ApiError('X', 'the server serves again');`, '1: serves'],
    ['user messages', 'howdah', 'say "the node stands still"', '1: stands'],
    ['test names', 'a.test.ts', `test('should do a thing', () => {});`, '1: should'],
    ['test names', 'a.test.ts', `describe('x', () => test.each([1])('what it is', f));`, '1: what'],
  ])('a word that is wrong in %s is found in %s: %s', (_, path, source, hit) => {
    const words = found(path, source);
    expect(words).toContain(hit);
  });

  test.each([
    ['identifiers in the contract', 'packages/contract/src/a.ts', 'const memberOf = 1;'],
    ['declarations', 'packages/server/src/a.ts', 'const { members } = row.members;'],
    ['identifiers', 'a.ts', '/** The member, calm, with the hands of another. */'],
    ['prose of the local engine', 'packages/server/src/api/a.ts', '// reads the log'],
    [
      'prose, which has no code',
      'README.md',
      'Run `howdah tell` in `the store`.\n\n    the store\n',
    ],
    ['prose, which has no strings', 'a.ts', `f('What is kept. The store is told.');`],
    ['prose that asks', 'README.md', 'What must hold? Nothing.'],
    ['the first words of a comment', 'a.ts', '/** A size. It counts. */\n// Items.\n// it ends'],
    ['comments', 'README.md', 'It runs PostgreSQL.'],
    ['user messages', 'packages/server/src/engine/engine.ts', '// it stands and serves'],
    ['test names', 'a.test.ts', `f('should do a thing');`],
  ])('a word that is wrong only in %s is left alone elsewhere', (_, path, source) => {
    expect(found(path, source)).toEqual([]);
  });

  test('a scope that does not exist is refused', () => {
    const table = '## Words that are not used\n\n| `a` | nowhere | all | b |\n';
    expect(() => rulesOf(table)).toThrow('no scope "nowhere"');
  });
});

describe('the glossary', () => {
  const terms = (glossary.split('## Terms')[1] ?? '').split('\n## ')[0] ?? '';
  const rows = [...terms.matchAll(/^\| (.+) \| (.+) \| (.+) \| (\w+) \|$/gm)].slice(1);

  test('has a meaning and a class for each term', () => {
    expect(rows.length).toBeGreaterThan(40);
    for (const [row, , meaning = '', , kind = ''] of rows) {
      expect(meaning.length, row).toBeGreaterThan(5);
      expect(['private', 'persisted', 'public', 'external'], row).toContain(kind);
    }
  });

  test('has a pattern for each word that is not to be used', () => {
    for (const [, term = '', , words = ''] of rows) {
      for (const [, word = '', reading] of words.matchAll(/`([^`]+)`([^,`]*\*\(reading\)\*)?/g)) {
        if (reading !== undefined) continue;
        const matching = rules.filter(({ pattern }) => word.match(pattern) !== null);
        expect(matching, `${term}: ${word}`).not.toEqual([]);
      }
    }
  });
});
