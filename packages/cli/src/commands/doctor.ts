import type { Command } from 'commander';
import { verb } from '../command.ts';
import { homeDirectory } from '../connection.ts';
import { paint, say } from '../output.ts';
import { loadServer } from '../server.ts';

export function addDoctor(program: Command): void {
  const does =
    'Examine this machine: what Howdah can do here, what is missing, and the command that adds it.';
  verb(program, 'doctor', { does, example: 'howdah doctor' }).action(async () => {
    const server = await loadServer();
    const mark = { ok: paint.green('✓'), note: paint.yellow('•'), missing: paint.red('✗') };
    for (const { what, state, found, remedy } of await server.doctor(homeDirectory())) {
      say(`${mark[state]} ${paint.bold(what)}: ${found}`);
      if (remedy !== undefined) say(`    ${remedy}`);
    }
  });
}
