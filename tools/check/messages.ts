/**
 * Collects every text that a user can read, for docs/messages.md.
 *
 * The table below says where texts are: an area names its files, and the calls, properties and
 * functions whose strings are shown. In an area with `sentences`, strings of several words are
 * texts wherever they are.
 */
import { readFileSync } from 'node:fs';
import { parseSync } from 'oxc-parser';
import { filesOf } from './files.ts';
import { calleeOf, childrenOf, dottedAt, isNode, type Node } from './lengths.ts';

export type Area = {
  readonly title: string;
  readonly files: RegExp;
  /** Functions and constructors, by their dotted names, whose arguments are shown. */
  readonly calls?: RegExp;
  /** Properties, and attributes of JSX, whose values are shown. */
  readonly properties?: RegExp;
  /** Functions and constants that contain nothing but texts. */
  readonly names?: RegExp;
  /** A text belongs to the first area that collects it. */
  readonly sentences?: true;
};

const ERRORS = /(^|\.)(\w*Error|EngineUnavailable|NotYet|StatementRefused|UnsafeEntry|Failure)$/;

export const AREAS: readonly Area[] = [
  {
    title: 'Validation and general errors of the API',
    files: /^packages\/server\/src\/api\/errors\.ts$/,
    calls: ERRORS,
    names: /^(REFUSALS|COUNTED|allowedBy|explainValidation)$/,
  },
  {
    title: 'Operation steps',
    files: new RegExp(
      '^packages/server/src/' +
        '(engine/postgres/decisions/(decide|plan)|reconcile/|services/|engine/local/remove)',
    ),
    calls: /^(startStep|timed)$/,
    properties: /^(step|why|name|detail)$/,
    names: /^(STEP_NAME|DRILL_STEP|haStepName|setStepName|stepName)$/,
  },
  {
    title: 'Warnings, problems and remedies',
    files: /^packages\/server\/src\/(domain|reconcile|engine)\//,
    properties: /^(problem|warnings?|remedy|note)$/,
    names: /[wW]arning/,
  },
  {
    title: 'Findings of howdah doctor',
    files: new RegExp(
      '^packages/server/src/engine/local/' +
        String.raw`(admin/(doctor|leftovers)|postgres/installations)\.ts$`,
    ),
    properties: /^(what|found|remedy|note)$/,
    sentences: true,
  },
  {
    title: 'Findings of the integrity check',
    files:
      /^packages\/server\/src\/(engine\/local\/admin\/integrity(-networks)?|store\/integrity)\.ts$/,
    sentences: true,
  },
  {
    title: 'Control log',
    files: /^packages\/server\/src\//,
    calls: /(^|\.)log\.(info|warn|error|debug|fatal)$/,
  },
  {
    title: 'Startup of the control plane',
    files: /^packages\/server\/src\/(main|control-plane|metadata-database|config|settings)\.ts$/,
    calls: /^(timed|progress)$/,
    sentences: true,
  },
  {
    title: 'Errors of the API and the engine',
    files: /^packages\/(contract|server)\/src\//,
    calls: ERRORS,
    properties: /^(message|reason)$/,
  },
  {
    title: 'Sentences of the API and its services',
    files: /^packages\/server\/src\/(api|services|domain|events)\//,
    sentences: true,
  },
  {
    title: 'Descriptions of the contract',
    files: /^packages\/contract\/src\//,
    properties: /^(description|title|summary)$/,
    sentences: true,
  },
  {
    title: 'Command line',
    files: /^packages\/cli\/src\//,
    calls: /^(say|note|noun|verb|print)$|(Failure|Error)$/,
    properties: /^(does|example)$/,
    sentences: true,
  },
  { title: 'Errors of the client', files: /^packages\/client\/src\//, calls: ERRORS },
  {
    title: 'Tools of the MCP server',
    files: /^packages\/mcp\/src\/(?!catalogs)/,
    calls: ERRORS,
    properties: /^(title|description)$/,
    sentences: true,
  },
  {
    title: 'Web console',
    files: /^packages\/console\/src\//,
    calls: ERRORS,
    properties: new RegExp(
      '^(label|title|hint|placeholder|description|confirm|problem|remedy|text|action|' +
        'aria-label|alt|unit)$',
    ),
    sentences: true,
  },
];

const SOURCE = /^packages\/[^/]+\/src\/.*\.tsx?$/;
const TEST = /\.(test|testing)\.tsx?$/;
/** Two words; a statement of SQL, a path or a list of CSS classes is none. */
const SENTENCE = /[A-Za-z{}'’)]{2,}[,;:.]? [A-Za-z{]{2,}/;
const NO_TEXT = new RegExp(
  String.raw`^\s*(select|insert into|update|delete from|with|alter|create|drop|grant|revoke|set|` +
    'listen|notify|begin|commit|lock|copy|vacuum|truncate|show)' +
    String.raw`\b.*\b(from|into|set|table|role|database|as|on|to|mode|values|returning)\b`,
  'is',
);
const CODE = /^[A-Z_0-9]+$|^[a-z]+(_[a-z]+)+$|^[/.#&?]|^https?:/;
/** A word like `usage` that an error or a command gets beside its text. */
const KEY = /^[a-z]+([A-Z][a-z]+)*$/;
/** Properties whose values are for programs. */
const FOR_PROGRAMS = /^(kind|mode|state|status|code|type|format|method|className|style|key)$/;
const TYPES = /^(TS(?!As|NonNull|Satisfies)|ImportDeclaration|ExportAllDeclaration)/;

/** Whether a string has several words and is neither a statement nor a path. */
export function isUserText(text: string): boolean {
  return SENTENCE.test(text) && !CODE.test(text) && !NO_TEXT.test(text);
}

/** @returns the texts of one source that belong to `area`, in their order and each of them once */
export function textsIn(path: string, source: string, area: Area): string[] {
  const { program, errors } = parseSync(path, source);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message ?? 'cannot be parsed'}`);
  const texts = new Set<string>();

  function take(text: string, isShown: boolean): void {
    const line = text.trim().replaceAll(/\s*\n\s*/g, ' ');
    if (
      !/[a-z]{2}/i.test(line.replaceAll(/\{[^}]*\}/g, '')) ||
      CODE.test(line) ||
      NO_TEXT.test(line)
    )
      return;
    if (isShown || (area.sentences === true && SENTENCE.test(line))) texts.add(line);
  }

  function visit(node: Node, isShown: boolean): void {
    if (TYPES.test(node.type) || isForPrograms(node)) return;
    if (node.type === 'JSXText') return take(String(Reflect.get(node, 'value')), true);
    const text = textOf(node);
    if (text !== null) take(text, isShown);
    for (const [key, child] of childrenOf(node)) {
      if (text !== null && node.type === 'BinaryExpression') visitPart(child);
      else {
        const isKey = key === 'arguments' && KEY.test(textOf(child) ?? '');
        visit(child, !isKey && showsChild(node, key, isShown, text !== null, area));
      }
    }
  }

  /** The parts of a sum are in its text already; what their placeholders contain is not. */
  function visitPart(part: Node): void {
    if (textOf(part) === null) return visit(part, false);
    for (const [, inner] of childrenOf(part)) {
      if (part.type === 'BinaryExpression') visitPart(inner);
      else visit(inner, false);
    }
  }

  visit(program, false);
  return [...texts];
}

function showsChild(
  node: Node,
  key: string,
  isShown: boolean,
  isInText: boolean,
  area: Area,
): boolean {
  if (isInText) return false;
  switch (node.type) {
    case 'CallExpression':
    case 'NewExpression':
      // Strings that an unknown function gets inside of a text are separators and keys.
      return key === 'arguments' && area.calls?.test(calleeOf(node)) === true;
    case 'Property':
      return key === 'value' && (isShown || area.properties?.test(keyOf(node)) === true);
    case 'JSXAttribute':
      return key === 'value' && area.properties?.test(keyOf(node)) === true;
    case 'VariableDeclarator':
    case 'FunctionDeclaration':
      return isShown || area.names?.test(dottedAt(node, 'id')) === true;
    case 'BinaryExpression':
    case 'MemberExpression':
      return false;
    case 'ConditionalExpression':
      return isShown && key !== 'test';
    case 'SwitchCase':
      return isShown && key === 'consequent';
    default:
      return isShown;
  }
}

function isForPrograms(node: Node): boolean {
  if (node.type !== 'Property' && node.type !== 'JSXAttribute') return false;
  const value: unknown = Reflect.get(node, 'value');
  return (
    FOR_PROGRAMS.test(keyOf(node)) &&
    isNode(value) &&
    (textOf(value) !== null || keyOf(node) === 'className')
  );
}

/** The key of a property, the name of an attribute. */
function keyOf(node: Node): string {
  const key: unknown = Reflect.get(node, node.type === 'Property' ? 'key' : 'name');
  if (!isNode(key)) return '';
  return String(Reflect.get(key, 'name') ?? Reflect.get(key, 'value') ?? '');
}

/**
 * @returns the text of a string, a template literal or a sum of them, with `{name}` for a value;
 * null: it is no text
 */
export function textOf(node: Node): string | null {
  if (node.type === 'Literal') {
    const value: unknown = Reflect.get(node, 'value');
    return typeof value === 'string' ? value : null;
  }
  if (node.type === 'BinaryExpression' && Reflect.get(node, 'operator') === '+') {
    const sides = childrenOf(node).map(([, side]) => side);
    const texts = sides.map((side) => textOf(side));
    if (texts.every((text) => text === null)) return null;
    return texts.map((text, index) => text ?? placeholder(sides[index])).join('');
  }
  if (node.type !== 'TemplateLiteral') return null;
  const parts = childrenOf(node);
  const values = parts.flatMap(([key, child]) => (key === 'expressions' ? [child] : []));
  return parts
    .flatMap(([key, child]) => (key === 'quasis' ? [cookedOf(child)] : []))
    .map((text, index) => text + (index < values.length ? placeholder(values[index]) : ''))
    .join('');
}

function cookedOf(quasi: Node): string {
  const value: unknown = Reflect.get(quasi, 'value');
  const isRead = typeof value === 'object' && value !== null && 'cooked' in value;
  return isRead ? String(value.cooked) : '';
}

function placeholder(node: Node | undefined): string {
  if (node === undefined) return '{value}';
  if (node.type === 'Identifier') return `{${String(Reflect.get(node, 'name'))}}`;
  if (node.type === 'MemberExpression') return `{${dottedAt(node, 'property') || 'value'}}`;
  if (node.type === 'CallExpression') {
    const [first]: unknown[] = [Reflect.get(node, 'arguments')].flat();
    const callee =
      calleeOf(node)
        .split('.')
        .findLast((part) => part !== '') ?? 'value';
    return callee === 'String' && isNode(first) ? placeholder(first) : `{${callee}}`;
  }
  return '{value}';
}

/** @returns the page: an area is a heading, a file a smaller one, a text a line */
export function messagesPage(root: string): string {
  const files = filesOf(root, SOURCE).filter((path) => !TEST.test(path));
  const sources = files.map((path) => ({ path, source: readFileSync(`${root}/${path}`, 'utf8') }));
  const taken = new Map(files.map((path) => [path, new Set<string>()]));
  const areas = AREAS.map((area) => {
    const parts = sources
      .filter(({ path }) => area.files.test(path))
      .flatMap(({ path, source }) => {
        const known = taken.get(path);
        const texts = textsIn(path, source, area).filter((text) => known?.has(text) !== true);
        for (const text of texts) known?.add(text);
        return texts.length === 0
          ? []
          : [`### ${path}\n\n${texts.map((text) => `    ${text}\n`).join('')}`];
      });
    return `## ${area.title}\n\n${parts.join('\n')}`;
  });
  return `# Messages

Every text that a user can read, by area and file. Generated from the sources by \
\`npm run generate\`
(\`tools/check/messages.ts\`), so that all of them can be read one after the other. \`{name}\` \
stands for a value.

${areas.join('\n')}`;
}
