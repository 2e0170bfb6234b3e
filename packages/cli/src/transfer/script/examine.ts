/** Examines a script before anything of it runs, and writes what is run of it. */
import { isReservedRole } from '@howdah/contract/types';
import {
  judge,
  judgeCommand,
  LEFT_OUT,
  makingRole,
  tolerant,
  type LeftOut,
  type Verdict,
} from './rules.ts';
import { partsOf, type Part } from './scan.ts';

export type Script = AsyncIterable<Buffer | string>;

/** Something that keeps a script from being imported. `line` 0: of the script as a whole. */
export type InTheWay = { line: number; what: string; remedy: string };

/** The findings of a script, in texts for people. */
export type Findings = {
  obstacles: InTheWay[];
  /** How many statements are left out, and the first of them, by their reason. */
  leftOut: Map<LeftOut, { count: number; examples: string[] }>;
  /** Roles that it makes, or that privileges and policies name. */
  roles: Set<string>;
  extensions: Map<string, number>;
};

const EXAMPLES = 3;
const EXAMPLE_CHARACTERS = 60;

/** Roles that no import makes: of PostgreSQL, of services, and the superuser of other places. */
const isNeverMade = (name: string): boolean =>
  isReservedRole(name) || /^(?:pg_|tsdbadmin$|postgres$)/.test(name);

/** Latin1 to what the bytes mean in UTF-8, in which scripts are as a rule. */
const readable = (text: string): string => Buffer.from(text, 'latin1').toString('utf8');

/** Decides about a part; rows belong to the statement before them. */
const verdictOf = (part: Exclude<Part, { kind: 'rows' }>): Verdict =>
  part.kind === 'command' ? judgeCommand(part.text) : judge(part.outline, part.text);

/** Reads a script to its end. */
export async function examine(script: Script): Promise<Findings> {
  const findings: Findings = {
    obstacles: [],
    leftOut: new Map(),
    roles: new Set(),
    extensions: new Map(),
  };
  const databases = new Set<string>();
  let database = '';
  for await (const part of partsOf(script)) {
    if (part.kind === 'rows') continue;
    const verdict = verdictOf(part);
    if (verdict.kind === 'connect') database = readable(verdict.database);
    else if (isContent(part, verdict)) databases.add(database);
    note(findings, part, verdict);
  }
  const names = [...databases].map((name) => name || 'the first').join(', ');
  if (databases.size > 1)
    findings.obstacles.push({
      line: 0,
      what: `it has the contents of several databases: ${names}`,
      remedy: 'dump each of them with pg_dump, and import it into a service of its own',
    });
  return findings;
}

const isContent = (part: Part, { kind }: Verdict): boolean =>
  part.kind === 'statement' &&
  /^(?:CREATE|COPY|INSERT|ALTER TABLE|DO)\b/i.test(part.outline) &&
  (kind === 'keep' || kind === 'change' || kind === 'obstacle');

function note(findings: Findings, part: Exclude<Part, { kind: 'rows' }>, verdict: Verdict): void {
  const add = (names: readonly string[]): void => {
    for (const name of names.map(readable)) if (!isNeverMade(name)) findings.roles.add(name);
  };
  switch (verdict.kind) {
    case 'obstacle':
      findings.obstacles.push({
        line: part.line,
        what: readable(verdict.what),
        remedy: verdict.remedy,
      });
      return;
    case 'policy': {
      const reserved = verdict.roles
        .map(readable)
        .filter((name) => isNeverMade(name) && !name.startsWith('pg_'));
      if (reserved.length > 0)
        findings.obstacles.push({
          line: part.line,
          what: `a policy for the role ${reserved.join(', ')}`,
          remedy: 'remove the role from the policy: no service has it',
        });
      return add(verdict.roles);
    }
    case 'privilege':
      return add(verdict.roles);
    case 'role':
      add([verdict.name]);
      return leaveOut(findings, 'role', part);
    case 'extension':
      findings.extensions.set(readable(verdict.name), part.line);
      return;
    case 'leave out':
      return leaveOut(findings, verdict.group, part);
    case 'connect':
      return leaveOut(findings, 'database', part);
    case 'keep':
    case 'change':
      return;
  }
}

function leaveOut(
  { leftOut }: Findings,
  group: LeftOut,
  part: Exclude<Part, { kind: 'rows' }>,
): void {
  const known = leftOut.get(group) ?? { count: 0, examples: [] };
  known.count++;
  const text = readable(part.kind === 'command' ? part.text : part.outline);
  if (known.examples.length < EXAMPLES)
    known.examples.push(
      text.length > EXAMPLE_CHARACTERS ? `${text.slice(0, EXAMPLE_CHARACTERS)}…` : text,
    );
  leftOut.set(group, known);
}

/** One line for each reason why something is left out. @param groups of these; null: of all */
export function leftOutLines(
  { leftOut }: Pick<Findings, 'leftOut'>,
  groups: readonly LeftOut[] | null = null,
): string[] {
  return [...leftOut]
    .filter(([group]) => groups === null || groups.includes(group))
    .map(
      ([group, { count, examples }]) =>
        `${count} ${LEFT_OUT[group]} (${examples.join('; ')}` +
        (count > examples.length ? '; …)' : ')'),
    );
}

/** How a script is written for a service. */
export type Writing = {
  /** Roles that the service does not have, and that the script needs. */
  roles: readonly string[];
  /** Extensions that the service has. */
  has: ReadonlySet<string>;
  /** A word that the script does not have. */
  tag: string;
};

/** Gives the statements of a script that an import runs, once it has no obstacle. */
export async function* write(script: Script, { roles, has, tag }: Writing): AsyncGenerator<Buffer> {
  yield Buffer.from(roles.map(makingRole).join(''));
  let isKept = true;
  for await (const part of partsOf(script)) {
    if (part.kind !== 'rows') isKept = true;
    const text: string = part.kind === 'rows' ? (isKept ? part.text : '') : textOf(part, has, tag);
    if (part.kind !== 'rows') isKept = text !== '';
    if (text !== '') yield Buffer.from(text, 'latin1');
  }
}

function textOf(
  part: Exclude<Part, { kind: 'rows' }>,
  has: ReadonlySet<string>,
  tag: string,
): string {
  const verdict = verdictOf(part);
  switch (verdict.kind) {
    case 'keep':
    case 'policy':
    // Nobody gets here with an obstacle: PostgreSQL says why not.
    case 'obstacle':
      return part.text;
    case 'change':
      return verdict.text;
    case 'privilege':
      return tolerant(part.text, tag);
    case 'extension':
      return has.has(readable(verdict.name)) ? '' : part.text;
    case 'role':
    case 'leave out':
    case 'connect':
      return '';
  }
}
