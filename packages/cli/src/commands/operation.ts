import type { Schemas } from '@howdah/client';
import { OPERATION_KINDS, OPERATION_STATUSES } from '@howdah/contract/status';
import { Option, type Command } from 'commander';
import { given, noun, verb, type Changing, type Listing, type Printing } from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { findServiceId, ofProject } from '../find.ts';
import { keyNames, serviceNames } from '../names.ts';
import { say, showAs, showList } from '../output.ts';
import { firstOf } from '../pages.ts';
import { linesOf, operationView } from '../views.ts';

type Operation = Schemas['Operation'];
type ListOptions = Listing & {
  service?: string;
  kind?: Operation['kind'];
  status?: Operation['status'];
};

export function addOperation(program: Command): void {
  const operation = noun(
    program,
    'operation',
    'Show finished and running operations, and cancel those that can be cancelled safely.',
  );

  verb(operation, 'list', {
    does: 'List operations, newest first.',
    example: 'howdah operation list --service orders --status running',
    takes: ['output', 'limit'],
  })
    .option('--service <service>', 'only operations on this service, by its id or name')
    .addOption(new Option('--kind <kind>', 'only operations of this kind').choices(OPERATION_KINDS))
    .addOption(
      new Option('--status <status>', 'only those with this status').choices(OPERATION_STATUSES),
    )
    .action(async (options: ListOptions) => {
      const connection = await connect();
      const query = {
        ...given(
          'service_id',
          options.service === undefined
            ? undefined
            : await findServiceId(connection, options.service),
        ),
        ...given('kind', options.kind),
        ...given('status', options.status),
      };
      const operations = await firstOf(options.limit, (page) =>
        connection.client.GET('/projects/{project_id}/operations', {
          params: { ...ofProject(connection), query: { ...query, ...page } },
        }),
      );
      const view = await viewFor(connection, options.output);
      await showList(options.output, operations, view);
    });

  verb(operation, 'get <operation>', {
    does: 'Show an operation with its steps.',
    example: 'howdah operation get 01jd3k7w0c',
    takes: ['output'],
  }).action(async (id: string, { output }: Printing) => {
    const connection = await connect();
    const found = await answered(
      connection.client.GET('/projects/{project_id}/operations/{operation_id}', {
        params: pathOf(connection, id),
      }),
    );
    const keyName = await keyNames(connection, output);
    await showAs(output, found, 'operation', () =>
      linesOf(found, keyName).forEach((line) => say(line)),
    );
  });

  verb(operation, 'cancel <operation>', {
    does:
      'Cancel an operation: a verification of a backup, ' +
      'or a drill or switchover that has not begun.',
    example: 'howdah operation cancel 01jd3k7w0c',
    takes: ['output', 'dryRun'],
  }).action(async (id: string, options: Changing) => {
    const connection = await connect(options);
    const cancelled = await answered(
      connection.client.POST('/projects/{project_id}/operations/{operation_id}/cancel', {
        params: pathOf(connection, id),
      }),
    );
    await showAs(options.output, cancelled, 'operation', () =>
      say(`${cancelled.kind} ${id} is cancelled`),
    );
  });
}

/** `howdah service operations`: the operations on a service, with their steps. */
export function addServiceOperations(service: Command): void {
  verb(service, 'operations <service>', {
    does:
      'Print the operations on a service with their steps, newest first; ' +
      'on a deleted service by its id.',
    example: 'howdah service operations orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const query = { service_id: await findServiceId(connection, name) };
    const operations = await answered(
      connection.client.GET('/projects/{project_id}/operations', {
        params: { ...ofProject(connection), query },
      }),
    );
    const keyName = await keyNames(connection, output);
    await showAs(output, operations, 'operation', () =>
      operations.flatMap((one) => linesOf(one, keyName)).forEach((line) => say(line)),
    );
  });
}

/** The table of operations, with the names of services and keys. */
async function viewFor(connection: Connection, format: Printing['output']) {
  return operationView(await serviceNames(connection, format), await keyNames(connection, format));
}

function pathOf(connection: Connection, operationId: string) {
  return { path: { project_id: connection.projectId, operation_id: operationId } };
}
