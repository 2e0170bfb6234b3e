import { describeEffects, asksForName } from '@howdah/contract/effects';
import type { Action } from '@howdah/contract/actions';
import type { Environment } from '@howdah/contract/types';
import type { Confirming, Destroying } from './command.ts';
import { Failure } from './exit.ts';
import { printable } from './output.ts';

/**
 * Whether a question is asked: on a terminal, without `--yes`. A dry run deletes nothing, so it
 * asks nothing.
 */
export function asks({ yes, dryRun }: Destroying): boolean {
  return yes !== true && dryRun !== true && process.stdin.isTTY && process.stdout.isTTY;
}

/**
 * Asks before something is deleted or stopped, where {@link asks} says so.
 *
 * @throws Failure refused, when the answer is not yes
 */
export async function confirm(question: string, options: Destroying): Promise<void> {
  if (!asks(options)) return;
  const answer = await ask(`${printable(question)} [y/N] `);
  if (!/^y(es)?$/i.test(answer.trim()))
    throw new Failure('nothing was changed; --yes skips this question', 'refused');
}

/**
 * Asks for the name of a thing before something that is hard to undo, where {@link asks} says so
 * and `--confirm` does not give the name.
 *
 * @param purpose what the name is typed for: `stop the PROD service orders (linltu4hxx)`
 * @returns the confirmed name; undefined: none was given
 * @throws Failure refused, when another name was typed; usage, when another one was given
 */
export async function confirmName(
  purpose: string,
  name: string,
  { confirm: given, ...options }: Destroying & { confirm?: string },
): Promise<string | undefined> {
  if (given !== undefined && given !== name)
    throw new Failure(`--confirm: found ${given}; the service is named ${name}`, 'usage');
  if (given !== undefined || !asks(options)) return given;
  const typed = await ask(`Type ${printable(name)} to ${printable(purpose)}: `);
  if (typed.trim() !== name.trim())
    throw new Failure('nothing was done: another name was typed', 'refused');
  return name;
}

/** A service or a read replica set, as a protected change is asked about. */
type Protected = { name: string; id: string; environment: Environment };

/**
 * Asks for the name of a PROD service before an action that takes something away from its users.
 * `--yes` does not answer that question: a script names the service.
 *
 * @returns what `--confirm` or the user gave; undefined: nothing was asked for
 * @throws Failure usage without a terminal and without the name; as {@link confirmName}
 */
export async function confirmAction(
  action: Action,
  { name, id, environment }: Protected,
  { confirm: given, dryRun }: Confirming,
): Promise<string | undefined> {
  if (!asksForName(action, environment) || dryRun === true) return undefined;
  const what = `this ${describeEffects(action)}, and ${printable(name)} (${id}) is PROD`;
  if (given === undefined && !asks({}))
    throw new Failure(`${what}: add --confirm ${quoted(name)}`, 'usage');
  return confirmName(`continue: ${what}`, name, given === undefined ? {} : { confirm: given });
}

/** A name as a shell takes it. */
const quoted = (name: string): string =>
  /^[\w.-]+$/.test(name) ? name : `'${printable(name).replaceAll("'", String.raw`'\''`)}'`;

/** Reads a line from the terminal. */
async function ask(question: string): Promise<string> {
  const { createInterface } = await import('node:readline/promises');
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const interrupted = new Promise<string>((resolve) =>
      terminal.once('SIGINT', () => resolve('')),
    );
    return await Promise.race([terminal.question(question), interrupted]);
  } finally {
    terminal.close();
  }
}

/** Reads a secret: from the terminal without echo, else the first line of standard input. */
export async function readSecret(prompt: string): Promise<string> {
  const { createInterface } = await import('node:readline/promises');
  const { Writable } = await import('node:stream');
  const isTyped = process.stdin.isTTY;
  if (isTyped) process.stderr.write(prompt);
  const unseen = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: process.stdin, output: unseen, terminal: isTyped });
  lines.once('SIGINT', () => lines.close());
  try {
    for await (const line of lines) return line;
    throw new Failure(
      'no password was given: type it, or pass it as the first line of standard input',
      'usage',
    );
  } finally {
    lines.close();
    if (isTyped) process.stderr.write('\n');
  }
}
