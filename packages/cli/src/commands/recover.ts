/** `howdah recover`: rebuilds an installation from a repository. */
import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { verb } from '../command.ts';
import { homeDirectory } from '../connection.ts';
import { say, stopwatch } from '../output.ts';
import { loadServer } from '../server.ts';

export function addRecover(program: Command): void {
  verb(program, 'recover <file>', {
    does: 'Rebuild an installation in an empty HOWDAH_HOME from the repository of a recovery kit.',
    example: 'howdah recover recovery-kit.json && howdah up',
  }).action(async (file: string) => {
    const server = await loadServer();
    const kit = await readFile(file === '-' ? '/dev/stdin' : file, 'utf8');
    for (const sentence of await server.recover(homeDirectory(), kit, stopwatch())) say(sentence);
    say('howdah up restores the services, PROD first; howdah status shows how far they are.');
  });
}
