import { resolve } from 'node:path';
import type { Command } from 'commander';
import { verb } from '../command.ts';
import { homeDirectory } from '../connection.ts';
import { Failure } from '../exit.ts';
import { say } from '../output.ts';
import { loadServer } from '../server.ts';

export function addControl(program: Command): void {
  verb(program, 'backup-control <file>', {
    does: 'Write what the control plane keeps (records, CA, first key; no databases) into a file. It holds secrets.',
    example: 'howdah backup-control /backup/howdah.json',
  }).action(async (file: string) => {
    refuseElsewhere();
    const server = await loadServer();
    const rows = await server.backupControl(homeDirectory(), resolve(file));
    say(
      `${rows} records in ${resolve(file)}. Databases are not in it: they stay in their own places.`,
    );
  });

  verb(program, 'restore-control <file>', {
    does: 'Bring back what backup-control wrote, into an empty HOWDAH_HOME; databases that are in its data belong to it again.',
    example: 'howdah restore-control /backup/howdah.json',
  }).action(async (file: string) => {
    refuseElsewhere();
    const server = await loadServer();
    const problems = await server.restoreControl(homeDirectory(), resolve(file));
    for (const problem of problems) say(problem);
    say('Restored. howdah up takes the databases over.');
  });
}

function refuseElsewhere(): void {
  if (process.env['DATABASE_URL'])
    throw new Failure(
      'DATABASE_URL: the metadata database is in a database of yours: back it up by pg_dump, and HOWDAH_HOME/ca and credentials.json beside it',
      'usage',
    );
}
