import type { Destroying } from './command.ts';
import { Failure } from './exit.ts';
import { printable } from './output.ts';

/**
 * Asks whether something is to be taken away, where somebody sits who can answer. Scripts, which have no terminal, are taken at their word,
 * as is `--yes`; a dry run takes nothing away.
 *
 * @throws Failure refused, when the answer is not yes
 */
export async function confirm(question: string, { yes, dryRun }: Destroying): Promise<void> {
  if (yes === true || dryRun === true || !process.stdin.isTTY || !process.stdout.isTTY) return;
  const answer = await ask(`${printable(question)} [y/N] `);
  if (!/^y(es)?$/i.test(answer.trim()))
    throw new Failure('nothing was changed; --yes skips this question', 'refused');
}

/**
 * Asks at a terminal for the name of a thing before something that is hard to undo, unless it was given as --confirm; as {@link confirm}
 * does, it does not ask scripts, nor with --yes.
 *
 * @param purpose what the name is typed for: `stop the PROD service orders (linltu4hxx)`
 * @returns the name that the caller confirms; undefined: nobody gave one
 * @throws Failure refused, when another name was typed; usage, when another one was given
 */
export async function confirmName(
  purpose: string,
  name: string,
  { confirm: given, yes, dryRun }: Destroying & { confirm?: string },
): Promise<string | undefined> {
  if (given !== undefined && given !== name)
    throw new Failure(`--confirm: found ${given}; the service is named ${name}`, 'usage');
  if (
    given !== undefined ||
    yes === true ||
    dryRun === true ||
    !process.stdin.isTTY ||
    !process.stdout.isTTY
  )
    return given;
  const typed = await ask(`Type ${printable(name)} to ${printable(purpose)}: `);
  if (typed.trim() !== name.trim())
    throw new Failure('nothing was done, since another name was typed', 'refused');
  return name;
}

/** A line that is typed on the terminal. */
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

/** A secret: typed unseen on a terminal, else the first line that comes. */
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
      'the password is read from the terminal, or from the first line of what is piped in; nothing came',
      'usage',
    );
  } finally {
    lines.close();
    if (isTyped) process.stderr.write('\n');
  }
}
