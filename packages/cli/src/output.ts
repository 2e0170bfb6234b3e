/** Output: data to stdout in the requested format, everything else to stderr. */
import { quoted } from '@howdah/contract/shell';
import { escapeInJson, makeVisible } from '@howdah/contract/text';
import { randomUUID } from 'node:crypto';
import { isatty } from 'node:tty';
import pc from 'picocolors';

export const FORMATS = ['table', 'json', 'yaml', 'env'] as const;
export type Format = (typeof FORMATS)[number];

/**
 * Marks our own colours. Texts from outside may contain escapes too, but cannot guess this mark.
 */
const COLOUR = randomUUID();

/**
 * The colours of a stream: none if it is not a terminal, also where picocolors would use them for
 * `CI`.
 */
const paintOf = (fd: 1 | 2) => {
  const colours = pc.createColors(
    isatty(fd) && process.env['TERM'] !== 'dumb' && (process.env['NO_COLOR'] ?? '') === '',
  );
  const paintWith = (colour: (text: string) => string) => (text: string) =>
    colour(makeVisible(text)).replaceAll('\u001b[', COLOUR);
  const { red, yellow, green, cyan, dim, bold } = colours;
  return {
    red: paintWith(red),
    yellow: paintWith(yellow),
    green: paintWith(green),
    cyan: paintWith(cyan),
    dim: paintWith(dim),
    bold: paintWith(bold),
  };
};
export const paint = paintOf(1);
export const paintNote = paintOf(2);

/**
 * Text that is safe for a terminal: our colours and no other escapes. Names, messages, logs and
 * values come from others.
 */
export const printable = (text: string): string => makeVisible(text).replaceAll(COLOUR, '\u001b[');

/** Prints a line. */
export function say(line = ''): void {
  process.stdout.write(`${printable(line)}\n`);
}

/** Prints JSON on one line, or on many. */
export function sayJson(value: unknown, indent?: number): void {
  say(escapeInJson(JSON.stringify(value, null, indent)));
}

/** Prints a line that is not data. */
export function note(line: string): void {
  process.stderr.write(`${printable(line)}\n`);
}

/** Shows a line on the terminal until {@link endLive}. */
export function showLive(line: string): void {
  process.stderr.write(printable(line));
}

export function endLive(): void {
  process.stderr.write('\r\u001b[K');
}

/** Prints rows as aligned columns under a header. */
export function table(titles: readonly string[], values: readonly (readonly string[])[]): void {
  const inLine = (text: string): string => makeVisible(text.replaceAll(/[\n\t]/g, ' '));
  const [header, rows] = [titles.map(inLine), values.map((row) => row.map(inLine))];
  const widths = header.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => [...(row[column] ?? '')].length)),
  );
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - [...cell].length))
      .join('  ')
      .trimEnd();
  say(line(header));
  for (const row of rows) say(line(row));
}

/** A duration for people. Never negative, since its two times may come from two clocks. */
export function duration(ms: number): string {
  return ms < 1000 ? `${Math.max(Math.round(ms), 0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** Shell variables by name. */
export type Variables = Readonly<Record<string, string>>;

/** How things of one kind are shown. */
export type View<T> = {
  /** The prefix of the names of variables: `vpc` makes VPC_ID. */
  noun: string;
  /**
   * The id of a thing that has a name: a line of one thing. A list has it beside a name that
   * several things share. Absent: the thing has no name, and its id is a column.
   */
  id?: (thing: T) => string;
  /**
   * The columns of a list, and the lines of one thing, without empty ones. The first one is the
   * name.
   */
  columns: readonly (readonly [title: string, cell: (thing: T) => string])[];
  /** Additional lines of one thing. */
  details?: readonly (readonly [title: string, cell: (thing: T) => string])[];
  /** Variables in place of one for each field. */
  variables?: (thing: T) => Variables;
};

/** Prints one thing. */
export async function show<T>(format: Format, answer: T, view: View<T>): Promise<void> {
  const lines = () => {
    const { id, columns, details = [] } = view;
    const ofId = id === undefined ? [] : [['ID', id] as const];
    const all = [...ofId, ...columns, ...details].map(
      ([title, cell]) => [title, cell(answer)] as const,
    );
    const width = Math.max(...all.map(([title]) => title.length));
    for (const [title, text] of all) if (text !== '') say(`${title.padEnd(width)}  ${text}`);
  };
  await showAs(format, answer, view.noun, lines, view.variables?.(answer));
}

/** Prints a list. */
export async function showList<T>(
  format: Format,
  answer: readonly T[],
  { noun, id, columns }: View<T>,
): Promise<void> {
  const rows = () =>
    table(
      columns.map(([title]) => title),
      withIds(
        answer.map((thing) => columns.map(([, cell]) => cell(thing))),
        answer.map((thing) => id?.(thing)),
      ),
    );
  await showAs(format, answer, noun, rows);
}

/** @returns the rows, with its id beside each name that several of them begin with */
export function withIds(
  rows: readonly (readonly string[])[],
  ids: readonly (string | undefined)[],
): (readonly string[])[] {
  const names = rows.map(([name]) => name);
  const isShared = (name: string): boolean => names.indexOf(name) !== names.lastIndexOf(name);
  return rows.map((row, index) => {
    const [name = '', ...others] = row;
    const id = ids[index];
    return id !== undefined && isShared(name) ? [`${name} (${id})`, ...others] : row;
  });
}

/** Prints a changed thing: the API's answer to the change, or the thing as it is `now`. */
export async function showChanged<T>(
  format: Format,
  answer: unknown,
  view: View<T>,
  now: () => Promise<T>,
): Promise<void> {
  if (isForPrograms(format)) await showAs(format, answer, view.noun, () => undefined);
  else await show(format, await now(), view);
}

/** Whether the answer of the API is printed unchanged. */
export function isForPrograms(format: Format): boolean {
  return format === 'json' || format === 'yaml';
}

/**
 * Prints an answer of the API.
 *
 * @param asTable prints it for people
 * @param variables replaces the variables of each field
 */
export async function showAs(
  format: Format,
  answer: unknown,
  noun: string,
  asTable: () => void,
  variables?: Variables,
): Promise<void> {
  switch (format) {
    case 'table':
      return asTable();
    case 'json':
      return sayJson(answer, 2);
    case 'yaml': {
      const { yamlOf } = await import('./yaml.ts');
      return say(yamlOf(answer));
    }
    case 'env':
      for (const [name, value] of Object.entries(variables ?? variablesOf(noun, answer))) {
        const line = `${name}=${quoted(value)}`;
        // A shell gets the value unchanged; on a terminal it is only displayed.
        if (isatty(1)) say(line);
        else process.stdout.write(`${line}\n`);
      }
  }
}

/**
 * A variable for each value, named after its path. Entries of lists are numbered, and `…_COUNT` is
 * the length of a list. Null becomes an empty value.
 */
function variablesOf(name: string, value: unknown): Variables {
  const prefix = name
    .replaceAll(/([a-z])([A-Z])/g, '$1_$2')
    .replaceAll(/[^A-Za-z0-9]/g, '_')
    .toUpperCase();
  if (value === null || value === undefined) return { [prefix]: '' };
  if (typeof value !== 'object')
    return { [prefix]: typeof value === 'string' ? value : JSON.stringify(value) };
  const counted: Variables = Array.isArray(value)
    ? { [`${prefix}_COUNT`]: String(value.length) }
    : {};
  return Object.assign(
    {},
    counted,
    ...Object.entries(value).map(([key, part]) => variablesOf(`${prefix}_${key}`, part)),
  );
}

/** Prints each part with its duration, when the next one begins. */
export function stopwatch(): (part: string | null) => void {
  let current: { part: string; begun: number } | null = null;
  return (part) => {
    if (current !== null)
      say(
        `${paint.green('✓')} ${current.part} ` +
          paint.dim(duration(performance.now() - current.begun)),
      );
    current = part === null ? null : { part, begun: performance.now() };
  };
}
