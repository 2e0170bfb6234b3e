/** What is printed, and how: data to stdout in the format that was asked for, everything else to stderr. */
import { escapeInJson, makeVisible } from '@howdah/contract/text';
import { randomUUID } from 'node:crypto';
import { isatty } from 'node:tty';
import pc from 'picocolors';

export const FORMATS = ['table', 'json', 'yaml', 'env'] as const;
export type Format = (typeof FORMATS)[number];

/** Stands for the begin of a colour in what is printed: texts of others hold escapes as well, and cannot know this. */
const COLOUR = randomUUID();

/** Colours of a stream, by its number: none where it is no terminal, whatever picocolors thinks of `CI`. */
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

/** What a terminal may be sent: our colours, and nothing else that it would obey. Names, messages, logs and values are texts of others. */
export const printable = (text: string): string => makeVisible(text).replaceAll(COLOUR, '\u001b[');

/** Prints a line. */
export function say(line = ''): void {
  process.stdout.write(`${printable(line)}\n`);
}

/** Prints JSON on one line, or on many. */
export function sayJson(value: unknown, indent?: number): void {
  say(escapeInJson(JSON.stringify(value, null, indent)));
}

/** Prints a line that is no data. */
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

/** How long something took, for people. Never negative: the two times may come from two clocks. */
export function duration(ms: number): string {
  return ms < 1000 ? `${Math.max(Math.round(ms), 0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** Variables of a shell, by their names. */
export type Variables = Readonly<Record<string, string>>;

/** How things of one kind are shown. */
export type View<T> = {
  /** What the names of variables begin with: `vpc` makes VPC_ID. */
  noun: string;
  /** Of a list the columns; of one thing the lines, where a cell that is empty is left out. */
  columns: readonly (readonly [title: string, cell: (thing: T) => string])[];
  /** Lines of one thing only. */
  details?: readonly (readonly [title: string, cell: (thing: T) => string])[];
  /** In place of a variable for each of its fields. */
  variables?: (thing: T) => Variables;
};

/** Prints one thing, as the API answered it. */
export async function show<T>(format: Format, answer: T, view: View<T>): Promise<void> {
  const lines = () => {
    const all = [...view.columns, ...(view.details ?? [])].map(
      ([title, cell]) => [title, cell(answer)] as const,
    );
    const width = Math.max(...all.map(([title]) => title.length));
    for (const [title, text] of all) if (text !== '') say(`${title.padEnd(width)}  ${text}`);
  };
  await showAs(format, answer, view.noun, lines, view.variables?.(answer));
}

/** Prints a list, as the API answered it. */
export async function showList<T>(
  format: Format,
  answer: readonly T[],
  { noun, columns }: View<T>,
): Promise<void> {
  const rows = () =>
    table(
      columns.map(([title]) => title),
      answer.map((thing) => columns.map(([, cell]) => cell(thing))),
    );
  await showAs(format, answer, noun, rows);
}

/** Prints what a change has made of a thing: the API's answer to the change, or the thing as it is `now`. */
export async function showChanged<T>(
  format: Format,
  answer: unknown,
  view: View<T>,
  now: () => Promise<T>,
): Promise<void> {
  if (isForPrograms(format)) await showAs(format, answer, view.noun, () => undefined);
  else await show(format, await now(), view);
}

/** Whether it is the answer of the API that is printed, not what is made of it. */
export function isForPrograms(format: Format): boolean {
  return format === 'json' || format === 'yaml';
}

/**
 * Prints an answer of the API.
 *
 * @param asTable prints it for people
 * @param variables in place of a variable for each of its fields
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
      const yaml = await import('yaml');
      // Many still read YAML 1.1, to which `no` and times are no strings.
      const document = new yaml.Document(answer, { compat: 'yaml-1.1' });
      yaml.visit(document, {
        Scalar: (_key, node) => {
          // Only there escapes mean what they stand for.
          if (typeof node.value === 'string' && makeVisible(node.value) !== node.value)
            node.type = 'QUOTE_DOUBLE';
        },
      });
      return say(escapeInJson(document.toString({ lineWidth: 0 })).trimEnd());
    }
    case 'env':
      for (const [name, value] of Object.entries(variables ?? variablesOf(noun, answer))) {
        const line = `${name}=${quoted(value)}`;
        // A shell takes the value as it is; a person only looks at it.
        if (isatty(1)) say(line);
        else process.stdout.write(`${line}\n`);
      }
  }
}

/** A word of a shell as a person would type it: quoted only where that is needed. */
export function quotedWord(text: string): string {
  return /^[\w.@%+=:,/-]+$/.test(text) ? text : quoted(text);
}

/** A word of a POSIX shell, whatever is in it. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** A variable for each value, named after the way to it: of lists the place and, as `…_COUNT`, how long they are. What is null is empty. */
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
