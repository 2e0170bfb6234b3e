import { readText } from '@howdah/client/node';
import type { Command } from 'commander';
import { verb } from '../command.ts';
import { homeDirectory } from '../connection.ts';
import { Failure } from '../exit.ts';
import { note, say } from '../output.ts';
import { loadServer } from '../server.ts';

export function addAudit(program: Command): void {
  const does =
    'Compare the metadata database with the machine and with the clusters of regions: processes, ports, directories, limits, Clusters, operations.';
  verb(program, 'audit', { does, example: 'howdah audit' }).action(async () => {
    const server = await loadServer();
    const home = homeDirectory();
    const problems = await server.checkIntegrity({
      home,
      databaseUrl: readText('HOWDAH_DATABASE_URL', process.env['HOWDAH_DATABASE_URL']) || null,
    });
    problems.push(...(await server.checkMachine({ home })));
    // No contradiction: they are no part of the findings.
    for (const sentence of await server.listAside(home)) note(sentence);
    for (const problem of problems) say(problem);
    if (problems.length > 0)
      throw new Failure(
        `${problems.length} ${problems.length === 1 ? 'problem' : 'problems'} found`,
      );
    say('No problems found.');
  });
}
