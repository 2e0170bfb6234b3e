import { followEvents, NoAnswerError, type Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { given, verb, type Printing } from '../command.ts';
import { access, connect } from '../connection.ts';
import { growingNames } from '../names.ts';
import { note, say, sayJson, showAs } from '../output.ts';

type Event = Schemas['Event'];

export function addEvents(program: Command): void {
  verb(program, 'events', {
    does:
      'Print the events of the last days, oldest first, or new events as they happen. ' +
      'json and yaml print one event each.',
    example: 'howdah events --follow',
    takes: ['output'],
  })
    .option('-f, --follow', 'print new events as they happen; Ctrl-C ends it')
    .option('--after <id>', 'begin after the event with this id')
    .action(async ({ follow, after, output }: Printing & { follow?: true; after?: string }) => {
      const options = await access();
      const nameOf = growingNames(await connect(), output);
      if (follow === true) note('following the events; Ctrl-C ends it');
      const from = after ?? (follow === true ? undefined : '0');
      try {
        for await (const event of followEvents({
          ...options,
          follow: follow === true,
          ...given('after', from),
        }))
          await print(output, event, nameOf);
      } catch (error) {
        if (error instanceof TypeError) throw new NoAnswerError(options.apiUrl, error);
        throw error;
      }
    });
}

async function print(
  output: Printing['output'],
  event: Event,
  nameOf: (id: string) => Promise<string>,
): Promise<void> {
  if (output === 'json') return sayJson(event);
  if (output === 'yaml') say('---');
  const service = event.data.service_id;
  const name = typeof service === 'string' ? await nameOf(service) : '';
  await showAs(output, event, 'event', () => say(lineOf(event, name)));
}

/** An event as one line: time, type, service, and its data. */
function lineOf({ timestamp, type, data }: Event, serviceName: string): string {
  const { service_id: _service, operation_id: _operation, requested_by: _by, ...rest } = data;
  const words = Object.values(rest).flatMap((value) => wordsOf(value));
  return [timestamp, type.padEnd(18), serviceName, ...words].join(' ').trimEnd();
}

function wordsOf(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [String(value)];
  if (Array.isArray(value)) return value.length === 0 ? ['none'] : value.flatMap(wordsOf);
  const { name, code, message, finished, detail }: Record<string, unknown> = { ...value };
  return [name ?? code, finished === null ? 'begun' : undefined, detail ?? message].filter(
    (word) => typeof word === 'string',
  );
}
