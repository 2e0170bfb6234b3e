import type { Command } from 'commander';
import { verb, type Printing } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { say, showAs } from '../output.ts';

export function addConsole(program: Command): void {
  verb(program, 'console', {
    does: 'Print a link that opens the web console with the key of this command line. It works once, within an hour.',
    example: 'howdah console',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const { client, apiUrl } = await connect();
    const link = await answered(client.POST('/auth/links'));
    await showAs(output, link, 'link', () => say(new URL(link.path, apiUrl).href));
  });
}
