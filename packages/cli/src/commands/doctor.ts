import type { Command } from 'commander';
import pc from 'picocolors';
import { homeDirectory } from '../connection.ts';
import { say } from '../output.ts';
import { loadServer } from '../server.ts';

export function addDoctor(program: Command): void {
  program
    .command('doctor')
    .description('Look this machine over: what Howdah can do here, what is missing, and the command that adds it.')
    .action(async () => {
      const server = await loadServer();
      const mark = { ok: pc.green('✓'), note: pc.yellow('•'), missing: pc.red('✗') };
      for (const { what, state, found, mend } of await server.doctor(homeDirectory())) {
        say(`${mark[state]} ${pc.bold(what)}: ${found}`);
        if (mend !== undefined) say(`    ${mend}`);
      }
    });
}
