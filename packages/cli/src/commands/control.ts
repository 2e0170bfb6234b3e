import { resolve } from 'node:path';
import type { Command } from 'commander';
import { verb } from '../command.ts';
import { homeDirectory } from '../connection.ts';
import { Failure } from '../exit.ts';
import { say } from '../output.ts';
import { loadServer } from '../server.ts';

export function addControl(program: Command): void {
  verb(program, 'backup-control <file>', {
    does: 'Write the data of the control plane (metadata database, CA, first key; no services) to a file, which contains secrets.',
    example: 'howdah backup-control /backup/howdah.json',
  }).action(async (file: string) => {
    refuseElsewhere();
    const server = await loadServer();
    const rows = await server.backupControl(homeDirectory(), resolve(file));
    say(
      `${rows} rows in ${resolve(file)}. The databases of services are not in it; they stay where they are.`,
    );
  });

  verb(program, 'restore-control <file>', {
    does: 'Restore the file of backup-control into an empty HOWDAH_HOME. The databases in its data directory belong to it again.',
    example: 'howdah restore-control /backup/howdah.json',
  }).action(async (file: string) => {
    refuseElsewhere();
    const server = await loadServer();
    const problems = await server.restoreControl(homeDirectory(), resolve(file));
    for (const problem of problems) say(problem);
    say('Restored. howdah up takes over the databases.');
  });
}

function refuseElsewhere(): void {
  if (process.env['DATABASE_URL'])
    throw new Failure(
      'DATABASE_URL: the metadata database is in your own PostgreSQL: back it up with pg_dump, together with HOWDAH_HOME/ca and credentials.json',
      'usage',
    );
}
