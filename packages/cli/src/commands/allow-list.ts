import type { Command } from 'commander';
import { given, noun, verb, type Changing, type Destroying, type Printing } from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { ALLOW_LISTS, find, ofProject } from '../find.ts';
import { note, show, showList } from '../output.ts';
import { confirmCall } from '../permission.ts';
import { ALLOW_LIST_VIEW } from '../views.ts';

const CIDR_HELP = 'networks, separated by commas: 203.0.113.0/24,2001:db8::/32';

export function addAllowList(program: Command): void {
  const list = noun(
    program,
    'allow-list',
    'Create and manage allow lists: the networks whose clients may connect to a service.',
  );
  addReading(list);
  addChanging(list);

  verb(list, 'delete <allow-list>', {
    does: 'Delete an allow list that no service has. Asks for confirmation on a terminal.',
    example: 'howdah allow-list delete office',
    takes: ['dryRun', 'yes'],
  }).action(async (wanted: string, options: Destroying) => {
    const connection = await connect(options);
    const { allow_list_id: id, description } = await find(connection, ALLOW_LISTS, wanted);
    await confirmCall(
      connection,
      'deleteAllowList',
      `Delete the allow list ${description} (${id})?`,
      options,
    );
    await connection.client.DELETE('/projects/{project_id}/allow-lists/{allow_list_id}', {
      params: pathOf(connection, id),
    });
    note(`allow list ${description} is deleted`);
  });
}

function addReading(list: Command): void {
  verb(list, 'list', {
    does: 'List the allow lists.',
    example: 'howdah allow-list list',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    await showList(output, await ALLOW_LISTS.list(await connect()), ALLOW_LIST_VIEW);
  });

  verb(list, 'get <allow-list>', {
    does: 'Show an allow list.',
    example: 'howdah allow-list get office',
    takes: ['output'],
  }).action(async (wanted: string, { output }: Printing) => {
    const connection = await connect();
    const { allow_list_id: id } = await find(connection, ALLOW_LISTS, wanted);
    const found = await answered(
      connection.client.GET('/projects/{project_id}/allow-lists/{allow_list_id}', {
        params: pathOf(connection, id),
      }),
    );
    await show(output, found, ALLOW_LIST_VIEW);
  });
}

function addChanging(list: Command): void {
  verb(list, 'create', {
    does: 'Create an allow list.',
    example: 'howdah allow-list create --description office --cidr 203.0.113.0/24',
    takes: ['output', 'dryRun'],
  })
    .requiredOption('--description <text>', '1 to 128 characters')
    .requiredOption('--cidr <networks>', CIDR_HELP)
    .action(
      async ({
        description,
        cidr,
        ...options
      }: Changing & { description: string; cidr: string }) => {
        const connection = await connect(options);
        const made = await answered(
          connection.client.POST('/projects/{project_id}/allow-lists', {
            params: ofProject(connection),
            body: { description, cidr_blocks: networksOf(cidr) },
          }),
        );
        await show(options.output, made, ALLOW_LIST_VIEW);
      },
    );

  verb(list, 'change <allow-list>', {
    does: 'Change an allow list. Given networks replace those that it has; its services follow.',
    example: 'howdah allow-list change office --cidr 203.0.113.0/24,198.51.100.7/32',
    takes: ['output', 'dryRun'],
  })
    .option('--description <text>', '1 to 128 characters')
    .option('--cidr <networks>', CIDR_HELP)
    .action(
      async (
        wanted: string,
        { description, cidr, ...options }: Changing & { description?: string; cidr?: string },
      ) => {
        const connection = await connect(options);
        const { allow_list_id: id } = await find(connection, ALLOW_LISTS, wanted);
        const body = {
          ...given('description', description),
          ...given('cidr_blocks', cidr === undefined ? undefined : networksOf(cidr)),
        };
        const changed = await answered(
          connection.client.PATCH('/projects/{project_id}/allow-lists/{allow_list_id}', {
            params: pathOf(connection, id),
            body,
          }),
        );
        await show(options.output, changed, ALLOW_LIST_VIEW);
      },
    );
}

const networksOf = (text: string): string[] => text.split(',').map((network) => network.trim());

const pathOf = (connection: Connection, id: string) => ({
  path: { project_id: connection.projectId, allow_list_id: id },
});
