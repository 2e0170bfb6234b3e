/**
 * The words that docs/glossary.md replaces, each with the scope in which it is wrong.
 *
 * `everywhere` reads every line and the words inside of names (`dueAt` is "due at"). `identifiers`
 * are the names that a source declares and that of its file, `prose` is documents and comments,
 * `comments` are the latter alone, `user messages` are the texts of docs/messages.md, and
 * `test names` the titles of tests.
 */
import { basename, extname } from 'node:path';
import { parseSync } from 'oxc-parser';
import { calleeOf, childrenOf, type Node } from './lengths.ts';
import { AREAS, isUserText, textOf, textsIn } from './messages.ts';

const SCOPES = [
  'everywhere',
  'identifiers',
  'prose',
  'comments',
  'user messages',
  'test names',
] as const;
export type Scope = (typeof SCOPES)[number];

export type Rule = {
  readonly pattern: RegExp;
  readonly scopes: readonly Scope[];
  /** Which files it applies to. */
  readonly files: RegExp;
  readonly instead: string;
};
export type Hit = { readonly line: number; readonly word: string; readonly instead: string };

/** One text of a file that is read as a whole: a comment, a paragraph, a name. */
type Text = { readonly line: number; readonly lines: readonly string[] };
type Texts = Readonly<Record<Scope, readonly Text[]>>;

export const GLOSSARY = 'docs/glossary.md';
export const WORDED = /(\.(ts|tsx|js|mjs|sql|md|css|html|sh|go)|^howdah|\/run)$/;
/**
 * The glossary itself and the page of messages, which repeats sources; the plants of this check's
 * test; migrations that have run, and the reader and the test of what older releases wrote.
 */
const EXEMPT = new RegExp(
  [
    String.raw`^docs/(glossary|messages)\.md$`,
    String.raw`^tools/check/words\.test\.ts$`,
    String.raw`^packages/server/migrations/00(0\d|1[0-6])_`,
    String.raw`engine/local/host/marker(\.test)?\.ts$`,
    String.raw`server/test/upgrade\.test\.ts$`,
  ].join('|'),
);

const SOURCE = /\.(ts|tsx|js|mjs)$/;
const SHELL = /(\.sh|^howdah|\/run)$/;
const TEST_CALL = /^(describe|it|test)(\.\w+)*$/;
const USER_TEXT = /^packages\/[^/]+\/src\/(?!.*\.(test|testing)\.tsx?$)/;

const FUNCTION_KEYS = ['id', 'params'];
const DECLARED_KEYS: Readonly<Record<string, readonly string[]>> = {
  VariableDeclarator: ['id'],
  FunctionDeclaration: FUNCTION_KEYS,
  FunctionExpression: FUNCTION_KEYS,
  ArrowFunctionExpression: FUNCTION_KEYS,
  TSFunctionType: ['params'],
  CatchClause: ['param'],
  ClassDeclaration: ['id'],
  MethodDefinition: ['key'],
  PropertyDefinition: ['key'],
  TSTypeAliasDeclaration: ['id'],
  TSInterfaceDeclaration: ['id'],
  TSEnumDeclaration: ['id'],
  TSPropertySignature: ['key'],
  TSMethodSignature: ['key', 'params'],
  TSParameterProperty: ['parameter'],
};
const PATTERN_KEYS: Readonly<Record<string, readonly string[]>> = {
  ObjectPattern: ['properties'],
  ArrayPattern: ['elements'],
  Property: ['value'],
  AssignmentPattern: ['left'],
  RestElement: ['argument'],
};

/** @returns the rows of the table of words; a pattern with a capital letter minds the case */
export function rulesOf(glossary: string): Rule[] {
  const table = glossary.split('## Words that are not used')[1] ?? '';
  const rows = [...table.matchAll(/^\| `(.+)` \| (.+?) \| (.+?) \| (.+?) \|$/gm)];
  if (rows.length === 0) throw new Error(`${GLOSSARY}: no table of words`);
  return rows.map(([, cell = '', scopes = '', files = '', instead = '']) => {
    const source = cell.replaceAll('\\|', '|');
    const isCased = /[A-Z]/.test(source.replaceAll(/\\./g, ''));
    return {
      pattern: new RegExp(source, isCased ? 'g' : 'gi'),
      scopes: scopes.split(', ').map(scopeOf),
      files: filesOfCell(files),
      instead,
    };
  });
}

function scopeOf(name: string): Scope {
  const scope = SCOPES.find((known) => known === name);
  if (scope === undefined)
    throw new Error(`${GLOSSARY}: no scope "${name}"; there are: ${SCOPES.join(', ')}`);
  return scope;
}

/** `all`, a folder, or `all but` a folder; several are separated by commas. */
function filesOfCell(cell: string): RegExp {
  if (cell === 'all') return /^/;
  const isExcluded = cell.startsWith('all but ');
  const folders = cell
    .replace(/^all but /, '')
    .replaceAll('`', '')
    .split(', ');
  const any = folders.map((folder) => folder.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|');
  return new RegExp(isExcluded ? `^(?!${any})` : `^(${any})`);
}

/** @returns what the rules refuse in one file, in the order of its lines */
export function wordsIn(path: string, source: string, rules: readonly Rule[]): Hit[] {
  if (!WORDED.test(path) || EXEMPT.test(path)) return [];
  const texts = textsOf(path, source);
  const hits = rules
    .filter(({ files }) => files.test(path))
    .flatMap((rule) => rule.scopes.flatMap((scope) => hitsOf(rule, texts[scope])));
  return hits.toSorted((a, b) => a.line - b.line);
}

function hitsOf({ pattern, instead }: Rule, texts: readonly Text[]): Hit[] {
  return texts.flatMap(({ line, lines }) => {
    const starts = lines.map((_, index) => lines.slice(0, index).join(' ').length);
    return [...lines.join(' ').matchAll(pattern)].map((match) => {
      const at = starts.findLastIndex((start) => start <= match.index);
      return { line: line + Math.max(at, 0), word: match[0].trim(), instead };
    });
  });
}

function textsOf(path: string, source: string): Texts {
  const lines = source.split('\n').map((text, index) => ({ line: index + 1, lines: [text] }));
  if (SOURCE.test(path)) return textsOfSource(path, source, lines);
  const prose = proseOf(path, lines);
  return {
    everywhere: lines,
    identifiers: [],
    prose,
    comments: path.endsWith('.md') ? [] : prose,
    'user messages': SHELL.test(path) ? quotedTexts(lines) : [],
    'test names': [],
  };
}

function textsOfSource(path: string, source: string, lines: readonly Text[]): Texts {
  const { program, comments, errors } = parseSync(path, source);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message ?? 'cannot be parsed'}`);
  const lineAt = (offset: number): number => source.slice(0, offset).split('\n').length;
  const names = new Map<string, number>([[basename(path, extname(path)), 1]]);
  const titles: Text[] = [];

  function visit(node: Node, isDeclared: boolean): void {
    const name: unknown = Reflect.get(node, 'name');
    if (isDeclared && typeof name === 'string' && !names.has(name))
      names.set(name, lineAt(node.start));
    const title = titleOf(node);
    if (title !== null) titles.push({ line: lineAt(node.start), lines: [title] });
    for (const [key, child] of childrenOf(node)) visit(child, declares(node, key, isDeclared));
  }
  visit(program, false);

  const identifiers = [...names].map(([name, line]) => ({ line, lines: [wordsOfName(name)] }));
  // A name of one word is found in its line.
  const compounds = identifiers.filter(({ lines: [words = ''] }) => words.includes(' '));
  const prose = commentTexts(
    comments.map((comment) => ({ ...comment, line: lineAt(comment.start) })),
  );
  return {
    everywhere: [...lines, ...compounds],
    identifiers,
    prose,
    comments: prose,
    'user messages': userTexts(path, source),
    'test names': titles,
  };
}

/**
 * Whether the name under `key` is new here: a file that uses a name of another does not repeat its
 * words. A pattern declares what it binds, unless it keeps the name of a property.
 */
function declares(node: Node, key: string, isDeclared: boolean): boolean {
  if (PATTERN_KEYS[node.type]?.includes(key) === true)
    return isDeclared && Reflect.get(node, 'shorthand') !== true;
  return DECLARED_KEYS[node.type]?.includes(key) === true;
}

/** `memberOfSet`, `member-of-set`, `MEMBER_OF_SET`: "member of set". */
function wordsOfName(name: string): string {
  return name
    .replaceAll(/([a-z\d])([A-Z])/g, '$1 $2')
    .replaceAll(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .replaceAll(/[-_.$]+/g, ' ')
    .trim()
    .toLowerCase();
}

function titleOf(node: Node): string | null {
  if (node.type !== 'CallExpression' || !TEST_CALL.test(calleeOf(node))) return null;
  const [first] = childrenOf(node).flatMap(([key, child]) => (key === 'arguments' ? [child] : []));
  return first === undefined ? null : textOf(first);
}

type PlacedComment = { readonly type: string; readonly value: string; readonly line: number };

/** Line comments that follow each other are one text. */
function commentTexts(comments: readonly PlacedComment[]): Text[] {
  const texts: { line: number; lines: string[] }[] = [];
  for (const { type, value, line } of comments) {
    const last = texts.at(-1);
    const lines = value.split('\n').map((part) => plain(part.replace(/^\s*\*+ ?/, '')));
    const isNext = type === 'Line' && last !== undefined && last.line + last.lines.length === line;
    if (isNext) last.lines.push(...lines);
    else texts.push(...paragraphs({ line, lines }));
  }
  return texts;
}

function proseOf(path: string, lines: readonly Text[]): Text[] {
  if (path.endsWith('.md')) return documentTexts(lines.map(({ lines: [text = ''] }) => text));
  const marker = path.endsWith('.sql') ? /^\s*--+ (.*)/ : /^\s*(?:#|\/\/|\/\*|\*)\s(.*)/;
  const comments = lines.flatMap(({ line, lines: [text = ''] }) => {
    const [, value] = marker.exec(text) ?? [];
    return value === undefined ? [] : [{ type: 'Line', value, line }];
  });
  return commentTexts(comments);
}

/** A paragraph, an entry of a list and a cell of a table are texts; examples are not. */
function documentTexts(lines: readonly string[]): Text[] {
  let isInExample = false;
  const prose = lines.flatMap((line, index) => {
    if (line.startsWith('```')) isInExample = !isInExample;
    if (isInExample || line.startsWith('```') || /^ {4}/.test(line)) return [];
    if (line.startsWith('|'))
      return line.split(/(?<!\\)\|/).map((cell) => ({ line: index + 1, text: cell, begins: true }));
    return [{ line: index + 1, text: line, begins: /^\s*([-*] |\d+\. |#|>|$)/.test(line) }];
  });
  const texts: { line: number; lines: string[] }[] = [];
  for (const { line, text, begins } of prose) {
    const value = plain(text.replace(/^\s*([-*] |\d+\. |#+ |> )/, ''));
    const last = texts.at(-1);
    if (!begins && last !== undefined && last.line + last.lines.length === line)
      last.lines.push(value);
    else texts.push({ line, lines: [value] });
  }
  return texts;
}

/** An empty line ends a text, and so does a tag. */
function paragraphs({ line, lines }: Text): { line: number; lines: string[] }[] {
  const texts: { line: number; lines: string[] }[] = [{ line, lines: [] }];
  for (const [index, text] of lines.entries()) {
    if (text === '' || text.startsWith('@')) texts.push({ line: line + index, lines: [] });
    texts.at(-1)?.lines.push(text);
  }
  return texts;
}

/** Code in a text is no prose. */
function plain(text: string): string {
  return text
    .trim()
    .replaceAll(/`[^`]*`/g, '`…`')
    .replaceAll('**', '');
}

function userTexts(path: string, source: string): Text[] {
  if (!USER_TEXT.test(path)) return [];
  const areas = AREAS.filter(({ files }) => files.test(path));
  const texts = new Set(areas.flatMap((area) => textsIn(path, source, area)));
  return [...texts].map((text) => ({ line: lineOfText(source, text), lines: [text] }));
}

/** The line with the first words of a text, which may be put together from several strings. */
function lineOfText(source: string, text: string): number {
  const first = text.split(/\{[^}]*\}/).find((part) => part.trim().length > 3) ?? '';
  const at = source.indexOf(first.slice(0, 40));
  return at === -1 ? 1 : source.slice(0, at).split('\n').length;
}

function quotedTexts(lines: readonly Text[]): Text[] {
  return lines.flatMap(({ line, lines: [text = ''] }) =>
    [...text.matchAll(/"([^"]*)"/g)].flatMap(([, quoted = '']) =>
      isUserText(quoted) ? [{ line, lines: [quoted] }] : [],
    ),
  );
}
