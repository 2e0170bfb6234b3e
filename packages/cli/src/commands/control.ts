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
    const server = await loadServer();
    const problems = await server.restoreControl(homeDirectory(), resolve(file));
    for (const problem of problems) say(problem);
    say('Restored. howdah up takes over the databases.');
  });

  verb(program, 'metadata-database [place]', {
    does:
      'Show which metadata database the installation has, or change it while the control ' +
      'plane is stopped: an empty database gets a copy, and one that holds the installation ' +
      'is taken as it is.',
    example: 'howdah metadata-database postgres://howdah:password@db1/howdah',
  }).action(async (place: string | undefined) => {
    const server = await loadServer();
    const home = homeDirectory();
    if (place === undefined) return say(await server.describeMetadata(home));
    const { databaseUrl } = readSetting(server, place);
    say(await server.changeMetadata(home, databaseUrl));
  });
}

/** @throws Failure for a place that is neither `own` nor a URL of PostgreSQL */
function readSetting(server: Awaited<ReturnType<typeof loadServer>>, place: string) {
  if (place === 'own') return { databaseUrl: null };
  try {
    return server.readConfig({}, { HOWDAH_DATABASE_URL: place });
  } catch (error) {
    if (error instanceof server.ConfigError) throw new Failure(error.message, 'usage');
    throw error;
  }
}
