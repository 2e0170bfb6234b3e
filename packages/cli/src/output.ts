/** An error whose exit code scripts rely on: 1 it failed, 2 it was asked for wrongly, 3 not found. */
export class Failure extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode = 1) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** Prints a line. */
export function say(line = ''): void {
  process.stdout.write(`${line}\n`);
}

/** Prints rows as aligned columns under a header. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = header.map((title, column) => Math.max(title.length, ...rows.map((row) => [...(row[column] ?? '')].length)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - [...cell].length))
      .join('  ')
      .trimEnd();
  say(line(header));
  for (const row of rows) say(line(row));
}

/** How long something took, for people. */
export function duration(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
