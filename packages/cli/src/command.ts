/** How commands are declared: description, example, and the options that many commands share. */
import { Option, type Command } from 'commander';
import { Failure } from './exit.ts';
import { FORMATS, type Format } from './output.ts';

/** The description of each argument, by its name. Completion uses the same names. */
const ARGUMENTS: Readonly<Record<string, string>> = {
  service: 'its id or name',
  'other-service': 'the one to compare it with, by id or name; default: its parent',
  'deleted-service': 'its id or name',
  set: 'id or name of the read replica set',
  vpc: 'its id or name',
  'allow-list': 'its id or description',
  exporter: 'its id or name',
  peering: 'its id, or the name of the other VPC',
  operation: 'its id',
  lease: 'its id',
  command: 'a program and its arguments, after --',
  webhook: 'its id or URL',
  destination: 'its id or name',
  rule: 'its name; howdah alert rules shows them',
  repository: 'its id or name',
  place:
    'URL of a database, postgres://USER:PASSWORD@HOST:PORT/DATABASE, ' +
    'or own for a PostgreSQL of Howdah',
  region: 'its code',
  code: 'lower-case letters, digits and hyphens, at most 32',
  name: '1 to 128 characters',
  delivery: 'its id',
  key: 'its public half or name',
  project: 'its id or name',
  series: 'its name; howdah metrics list shows them',
  'script-file': 'path of a file, or - for standard input',
  time: 'number and unit: s, m, h, d, w',
  sql: 'one statement; $1, $2, … are the parameters',
  branch: 'of the git repository; default: the one that is checked out',
  moment: 'a distance like +2h, a date-time like 2027-01-31T12:00:00Z, or never',
  'new-name': '1 to 128 characters',
  environment: 'DEV or PROD',
  purpose: 'reports or lookups',
  url: 'http or https',
  address: 'of the API; default: HD_API, else the installation on this machine',
  'user-code': 'the code that the program shows',
  token: 'the token of a link that howdah console printed',
  'psql-options': 'passed to psql unchanged',
  shell: 'bash, zsh or fish',
  extension: 'its name, like postgis',
  message: 'up to 8192 characters',
  days: '1 to 180; default: as each repository says for all services',
  file: 'its path',
  directory: 'its path',
  source: 'URL of a database, postgres://USER@HOST:PORT/DATABASE, or path of a dump',
};

/** Options that many commands take. */
const SHARED = {
  output: () => [
    new Option(
      '-o, --output <format>',
      'table: for people; json, yaml: the answer of the API; env: shell variables',
    )
      .choices(FORMATS)
      .default('table' as const),
  ],
  force: () => [
    new Option('--force', 'accept a size that is more than the machine, or the largest node, has'),
  ],
  dryRun: () => [new Option('--dry-run', 'report what would be done, and do nothing')],
  wait: () => [
    new Option('--wait', 'wait until the operation ends, and report each step').default(true),
    new Option('--no-wait', 'return as soon as the change is accepted'),
    new Option(
      '--timeout <seconds>',
      'how long to wait; the operation continues afterwards',
    ).argParser(parseSeconds),
  ],
  yes: () => [new Option('-y, --yes', 'do not ask for confirmation')],
  confirm: () => [
    new Option(
      '--confirm <name>',
      'the name of what is changed, instead of the question; PROD needs it without a terminal',
    ),
  ],
  again: () => [
    new Option(
      '--if-absent',
      'when a service of this name exists, wait for that one and show it; default: an error',
    ),
    new Option(
      '--idempotency-key <key>',
      'a name for the call: with it, a repeated call gets the first answer and makes nothing new',
    ),
  ],
  limit: () => [
    new Option(
      '--limit <number>',
      'maximum number of entries; several pages of the API are read if needed',
    )
      .default(50)
      .argParser(parseLimit),
  ],
} as const;

/** Options of a command that prints data. */
export type Printing = { output: Format };
/** Options of a command that prints a list which may be long. */
export type Listing = Printing & { limit: number };
/** Options of a command that changes something. */
export type Changing = Printing & { dryRun?: true };
/** Options of a command that waits for its operation. */
export type Waiting = Changing & { wait: boolean; timeout?: number };
/** Options of a command that makes a service, and may be run again. */
export type Repeatable = Waiting & { ifAbsent?: true; idempotencyKey?: string };
/** Options of a command that stops or deletes something. */
export type Destroying = { dryRun?: true; yes?: true };
/** Options of a command that takes something away from the users of a service. */
export type Confirming = { dryRun?: true; confirm?: string };

export type About = {
  does: string;
  /** A complete command line. */
  example: string;
  takes?: readonly (keyof typeof SHARED)[];
  /** Whether its name may be left out in its group. */
  isDefault?: boolean;
};

/** A group of commands. */
export function noun(program: Command, name: string, does: string): Command {
  return program.command(name).description(does);
}

/** A command. @param usage its name and arguments: `rename <service> <new-name>` */
export function verb(
  parent: Command,
  usage: string,
  { does, example, takes = [], isDefault = false }: About,
): Command {
  const [name = '', ...args] = usage.split(' ');
  const command = parent.command(name, { isDefault }).description(does);
  for (const arg of args) {
    const kind = arg.replaceAll(/[<>[\].]/g, '');
    const meaning = ARGUMENTS[kind];
    if (meaning === undefined) throw new Error(`the argument ${arg} of ${name} has no description`);
    command.argument(arg, meaning);
  }
  for (const option of takes.flatMap((shared) => SHARED[shared]())) command.addOption(option);
  return command.addHelpText('after', `\nExample:\n  $ ${example}`);
}

/** An entry of a body or query; empty if the option was not given. */
export function given<Name extends string, T>(
  name: Name,
  value: T | undefined,
): Partial<Record<Name, T>> {
  const entry: Partial<Record<Name, T>> = {};
  if (value !== undefined) entry[name] = value;
  return entry;
}

/** The count in an option. @throws Failure */
export function countOf(flag: string, text: string): number {
  if (!/^[0-9]{1,9}$/.test(text))
    throw new Failure(`${flag}: found ${text}; expected a whole number`, 'usage');
  return Number(text);
}

function parseSeconds(text: string): number {
  return countOf('--timeout', text);
}

function parseLimit(text: string): number {
  const limit = countOf('--limit', text);
  if (limit === 0)
    throw new Failure('--limit: found 0; expected a whole number, 1 or more', 'usage');
  return limit;
}

/** One of several words. @throws Failure that lists them */
export function oneOf<const Word extends string>(
  what: string,
  words: readonly Word[],
  text: string,
): Word {
  const found = words.find((word) => word === text);
  if (found === undefined)
    throw new Failure(`${what}: found ${text}; allowed: ${words.join(', ')}`, 'usage');
  return found;
}

/** Several words, separated by commas. @throws Failure that lists the allowed words */
export function listOf<const Word extends string>(
  what: string,
  words: readonly Word[],
  text: string,
): Word[] {
  return text.split(',').map((word) => oneOf(what, words, word.trim()));
}
