/**
 * The lengths of files, functions and lines.
 *
 * Lines of JSX, of route declarations and of test declarations do not count to the function that
 * contains them: they are lists, and a list is not easier to read in two halves. The functions
 * inside of them are measured on their own.
 */
import { parseSync, visitorKeys } from 'oxc-parser';

export const MAX_FUNCTION_LINES = 80;
export const MAX_FILE_LINES = 600;
export const MAX_WIDTH = 100;
export const MAX_DOCUMENT_WIDTH = 110;

export type FunctionLength = {
  readonly name: string;
  readonly line: number;
  readonly lines: number;
};
export type Node = { readonly type: string; readonly start: number; readonly end: number };
type Span = readonly [first: number, last: number];

const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']);
const JSX = new Set(['JSXElement', 'JSXFragment']);
/**
 * `api.get(…)` declares a route, `addTool(…)` a tool of the MCP server,
 * `verb(…).action(…)` a command.
 */
const DECLARATION = /^(api|app)\.(route|get|post|put|patch|delete)$|^addTool$|^(verb|noun)(\.|$)/;
/** `describe(…)`, `it.skipIf(…)(…)`, `test.each(…)(…)` and the hooks of a test file. */
const TEST = /^(describe|it|test|beforeAll|beforeEach|afterAll|afterEach)(\.\w+)*$/;
/** A test's scenario is measured; the list of tests around it is not. */
const SUITE = /^describe(\.\w+)*$/;

/**
 * @returns the functions of a TypeScript or JavaScript source, in the order of their first lines
 */
export function functionsIn(path: string, source: string): FunctionLength[] {
  const { program, errors } = parseSync(path, source);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message ?? 'cannot be parsed'}`);
  const lineAt = lineFinder(source);
  const found: FunctionLength[] = [];

  /** @returns the spans of lines under `node` that do not count to the function around it */
  function visit(node: Node, name: string, parent: Node | null): Span[] {
    const inner = childrenOf(node).flatMap(([key, child]) =>
      visit(child, nameOf(node, key) ?? name, node),
    );
    const span: Span = [lineAt(node.start), lineAt(node.end)];
    if (FUNCTIONS.has(node.type)) {
      const lines = span[1] - span[0] + 1 - countLines(inner);
      if (!isCallbackOf(parent, node, SUITE)) {
        found.push({ name: ownName(node) ?? name, line: span[0], lines });
      }
      return inner;
    }
    if (JSX.has(node.type) || isDeclaration(node)) return [span];
    return inner;
  }

  visit(program, '(top)', null);
  return found.toSorted((a, b) => a.line - b.line);
}

/** @returns the 1-based numbers of the lines that are wider than `width`; links cannot be broken */
export function wideLines(source: string, width: number): number[] {
  return source
    .split('\n')
    .flatMap((line, index) =>
      [...line].length > width && !/https?:\/\/\S{60}/.test(line) ? [index + 1] : [],
    );
}

/** Tables and examples of a document keep their lines: only its text is wrapped. */
export function wideDocumentLines(source: string): number[] {
  let inExample = false;
  const text = source.split('\n').map((line) => {
    if (line.startsWith('```')) inExample = !inExample;
    return inExample || line.startsWith('|') || line.startsWith('    ') ? '' : line;
  });
  return wideLines(text.join('\n'), MAX_DOCUMENT_WIDTH);
}

function isDeclaration(node: Node): boolean {
  if (node.type !== 'CallExpression') return false;
  const callee = calleeOf(node);
  return DECLARATION.test(callee) || TEST.test(callee);
}

function isCallbackOf(parent: Node | null, node: Node, callee: RegExp): boolean {
  return parent?.type === 'CallExpression' && callee.test(calleeOf(parent)) && node !== parent;
}

/** The dotted name of what a call calls; `it.each(rows)(…)` is `it.each`. */
export function calleeOf(call: Node): string {
  const callee: unknown = Reflect.get(call, 'callee');
  return isNode(callee) ? dotted(callee) : '';
}

function dotted(node: Node): string {
  if (node.type === 'Identifier') return String(Reflect.get(node, 'name'));
  if (node.type === 'CallExpression') return calleeOf(node);
  if (node.type === 'TaggedTemplateExpression') return dottedAt(node, 'tag');
  if (node.type !== 'MemberExpression') return '';
  return `${dottedAt(node, 'object')}.${dottedAt(node, 'property')}`;
}

export function dottedAt(node: Node, key: string): string {
  const child: unknown = Reflect.get(node, key);
  return isNode(child) ? dotted(child) : '';
}

function ownName(node: Node): string | undefined {
  return dottedAt(node, 'id') || undefined;
}

/**
 * The name that a function gets from where it stands: a variable, a property,
 * an argument of a call.
 */
function nameOf(node: Node, key: string): string | undefined {
  if (node.type === 'VariableDeclarator' && key === 'init')
    return dottedAt(node, 'id') || undefined;
  if (node.type === 'AssignmentExpression' && key === 'right')
    return dottedAt(node, 'left') || undefined;
  if (key !== 'value') {
    return node.type === 'CallExpression' && key === 'arguments' ? titleOf(node) : undefined;
  }
  const isProperty = ['Property', 'MethodDefinition', 'PropertyDefinition'].includes(node.type);
  return isProperty ? dottedAt(node, 'key') || undefined : undefined;
}

/** `it "a name"` for a test, `setTimeout()` for another call. */
function titleOf(call: Node): string | undefined {
  const callee = calleeOf(call);
  if (callee === '') return undefined;
  const [first]: unknown[] = [Reflect.get(call, 'arguments')].flat();
  const title: unknown = isNode(first) ? Reflect.get(first, 'value') : undefined;
  return typeof title === 'string' && TEST.test(callee) ? `${callee} "${title}"` : `${callee}()`;
}

export function childrenOf(node: Node): [string, Node][] {
  return (visitorKeys[node.type] ?? []).flatMap((key) =>
    [Reflect.get(node, key)]
      .flat()
      .flatMap((child: unknown) => (isNode(child) ? [[key, child] as [string, Node]] : [])),
  );
}

export function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

function lineFinder(source: string): (offset: number) => number {
  const starts = [0, ...[...source.matchAll(/\n/g)].map(({ index }) => index + 1)];
  return (offset) => {
    let low = 0;
    let high = starts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((starts[middle] ?? 0) <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  };
}

/** The number of lines that the spans cover together. */
function countLines(spans: readonly Span[]): number {
  const lines = new Set<number>();
  for (const [first, last] of spans)
    for (let line = first; line <= last; line += 1) lines.add(line);
  return lines.size;
}

/**
 * @returns the parts of a source that are too long, as `path` or `path: function` with their lines
 */
export function tooLong(path: string, source: string): { found: string; lines: number }[] {
  const fileLines = source.split('\n').length - (source.endsWith('\n') ? 1 : 0);
  const file = fileLines > MAX_FILE_LINES ? [{ found: path, lines: fileLines }] : [];
  const functions = /\.(css|go)$/.test(path) ? [] : functionsIn(path, source);
  const long = functions.filter(({ lines }) => lines > MAX_FUNCTION_LINES);
  return [...file, ...long.map(({ name, lines }) => ({ found: `${path}: ${name}`, lines }))];
}
