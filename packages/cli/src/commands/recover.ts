/** `howdah recover`: rebuilds an installation from a repository. */
import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { verb } from '../command.ts';
import { homeDirectory } from '../connection.ts';
import { MOMENTS, momentOf } from '../moment.ts';
import { say, stopwatch } from '../output.ts';
import { loadServer } from '../server.ts';

export function addRecover(program: Command): void {
  verb(program, 'recover <file>', {
    does: 'Rebuild an installation in an empty HOWDAH_HOME from the repository of a recovery kit.',
    example: 'howdah recover recovery-kit.json && howdah up',
  })
    .option(
      '--only <services>',
      'ids or names, separated by commas; howdah service recover restores the others later',
    )
    .option('--at <time>', `as they were at this time: ${MOMENTS}; default: the newest state`)
    .action(async (file: string, { only, at }: { only?: string; at?: string }) => {
      const server = await loadServer();
      const kit = await readFile(file === '-' ? '/dev/stdin' : file, 'utf8');
      const options = {
        only: only === undefined ? null : only.split(',').map((name) => name.trim()),
        at: at === undefined ? null : momentOf('--at', at),
      };
      const sentences = await server.recover(homeDirectory(), kit, options, stopwatch());
      for (const sentence of sentences) say(sentence);
      say('howdah up restores the services, PROD first; howdah status shows how far they are.');
    });
}
