/** Candidates for the word at the cursor: from the declared commands, and names from the API. */
import type { Command, Option } from 'commander';

/** A candidate with its description. */
export type Candidate = { value: string; about: string };

/** Finds the values of a kind of argument, like `service`. @param args the arguments before it */
export type FindValues = (kind: string, args: readonly string[]) => Promise<Candidate[]>;

/**
 * The candidates for the last of the words that follow `howdah`, which may be empty.
 */
export async function complete(
  program: Command,
  words: readonly string[],
  findValues: FindValues,
): Promise<Candidate[]> {
  const current = words.at(-1) ?? '';
  const { command, args, option } = placeOf(program, words.slice(0, -1));
  const candidates = await candidatesAt(command, args, option, current, findValues);
  return candidates.filter(({ value }) => value.startsWith(current));
}

async function candidatesAt(
  command: Command,
  args: readonly string[],
  option: Option | null,
  current: string,
  findValues: FindValues,
): Promise<Candidate[]> {
  if (option !== null)
    return (
      option.argChoices?.map((value) => ({ value, about: '' })) ??
      findValues(kindOf(option.flags), args)
    );
  const help = command.createHelp();
  if (current.startsWith('-'))
    return help
      .visibleOptions(command)
      .map(({ long, short, description }) => ({ value: long ?? short ?? '', about: description }));
  const commands = help.visibleCommands(command);
  if (commands.length > 0)
    return commands.map((child) => ({ value: child.name(), about: child.description() }));
  const argument = command.registeredArguments[args.length];
  return argument === undefined ? [] : findValues(argument.name(), args);
}

/**
 * The command that the words name, the arguments that it has, and the option whose value comes
 * next.
 */
function placeOf(
  program: Command,
  words: readonly string[],
): { command: Command; args: readonly string[]; option: Option | null } {
  let command = program;
  let option: Option | null = null;
  const args: string[] = [];
  for (const word of words) {
    if (option !== null) option = null;
    else if (word.startsWith('-')) {
      const found: Option | undefined = command.options.find(
        ({ long, short }) => long === word || short === word,
      );
      option = found?.required === true ? found : null;
    } else {
      const child: Command | undefined =
        args.length === 0 ? command.commands.find((one) => one.name() === word) : undefined;
      if (child === undefined) args.push(word);
      else command = child;
    }
  }
  return { command, args, option };
}

/** `--vpc <vpc>` takes a vpc. */
function kindOf(flags: string): string {
  return /<(.+)>/.exec(flags)?.[1] ?? '';
}
