/** `howdah adopt` */
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { given, verb, type Waiting } from '../command.ts';
import { connect, findCa } from '../connection.ts';
import { Failure } from '../exit.ts';
import { ofProject, readService } from '../find.ts';
import { follow } from '../follow.ts';
import { note, showChanged } from '../output.ts';
import { serviceView } from '../views.ts';
import { CHANGES } from './service-shared.ts';

export function addAdopt(program: Command): void {
  verb(program, 'adopt <directory>', {
    does:
      'Make a directory of a service that the metadata database does not know a service again, ' +
      'with its id, data and passwords. howdah audit lists such directories. Needs an admin key ' +
      'of the operator project.',
    example: 'howdah adopt ~/.howdah/data/services/linltu4hxx --name orders',
    takes: CHANGES,
  })
    .option('--name <name>', 'default: its id')
    .action(async (directory: string, options: Waiting & { name?: string }) => {
      const connection = await connect(options);
      const { data, response } = await connection.client.POST(
        '/projects/{project_id}/services/adopt',
        {
          params: ofProject(connection),
          body: { directory: resolve(directory), ...given('name', options.name) },
        },
      );
      if (data === undefined) throw new Failure('the server answered without a body');
      for (const line of data.assumed ?? []) note(`assumed: ${line}`);
      await follow(connection, response, options);
      await showChanged(options.output, data, serviceView(await findCa(connection.apiUrl)), () =>
        readService(connection, data.service_id),
      );
    });
}
