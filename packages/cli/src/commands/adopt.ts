/** `howdah adopt` */
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { given, verb, type Waiting } from '../command.ts';
import { connect, findCa } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findAllowList, findVpc, ofProject, readService } from '../find.ts';
import { follow } from '../follow.ts';
import { note, showChanged } from '../output.ts';
import { serviceView } from '../views.ts';
import { CHANGES } from './service-shared.ts';

type Adopting = Waiting & { name?: string; vpc?: string; allowList?: string };

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
    .option('--vpc <vpc>', 'the VPC that it comes into, by its id or name')
    .option('--allow-list <allow-list>', 'the allow list that it gets, by its id or description')
    .action(async (directory: string, options: Adopting) => {
      const connection = await connect(options);
      const { name, vpc, allowList } = options;
      const networks = {
        ...given('vpc_id', vpc === undefined ? undefined : (await findVpc(connection, vpc)).id),
        ...given(
          'allow_list_id',
          allowList === undefined
            ? undefined
            : (await findAllowList(connection, allowList)).allow_list_id,
        ),
      };
      const { data, response } = await connection.client.POST(
        '/projects/{project_id}/services/adopt',
        {
          params: ofProject(connection),
          body: { directory: resolve(directory), ...given('name', name), ...networks },
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
