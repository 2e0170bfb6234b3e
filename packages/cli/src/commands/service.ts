import type { Schemas } from '@howdah/client';
import { SERVICE_STATUSES } from '@howdah/contract/status';
import { Option, type Command } from 'commander';
import { given, noun, verb, type Printing } from '../command.ts';
import { answered, connect, findCa } from '../connection.ts';
import { findPath, findService, ofProject } from '../find.ts';
import { show, showList } from '../output.ts';
import { DELETED_VIEW, MEMBER_VIEW, noteWarnings, serviceView } from '../views.ts';
import { addServiceLogs } from './logs.ts';
import { addServiceOperations } from './operation.ts';
import { addChanges } from './service-changes.ts';
import { addCreates } from './service-create.ts';
import { addEnds } from './service-delete.ts';

type Service = Schemas['Service'];

export function addService(program: Command): void {
  const service = noun(program, 'service', 'Make and manage services.');
  addReads(service);
  addServiceLogs(service);
  addServiceOperations(service);
  addCreates(service);
  addChanges(service);
  addEnds(service);
}

function addReads(service: Command): void {
  verb(service, 'list', {
    does: 'List the services.',
    example: 'howdah service list --status READY',
    takes: ['output'],
  })
    .addOption(
      new Option('--status <status>', 'only those with this status').choices(SERVICE_STATUSES),
    )
    .action(async ({ output, status }: Printing & { status?: Service['status'] }) => {
      const connection = await connect();
      const params = { ...ofProject(connection), query: given('status', status) };
      const services = await answered(
        connection.client.GET('/projects/{project_id}/services', { params }),
      );
      await showList(output, services, serviceView(null));
      services.forEach(noteWarnings);
    });

  verb(service, 'get <service>', {
    does: 'Show a service.',
    example: 'eval "$(howdah service get orders -o env)"',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const found = await findService(connection, name);
    await show(output, found, serviceView(await findCa(connection.apiUrl)));
    noteWarnings(found);
  });

  verb(service, 'members <service>', {
    does: 'Show the servers of a service: its primary and the replicas that stand by.',
    example: 'howdah service members orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const members = connection.client.GET(
      '/projects/{project_id}/services/{service_id}/members',
      await findPath(connection, name),
    );
    await showList(output, await answered(members), MEMBER_VIEW);
  });

  verb(service, 'list-deleted', {
    does: 'List deleted services that can be restored.',
    example: 'howdah service list-deleted',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const connection = await connect();
    const deleted = connection.client.GET('/projects/{project_id}/deletedServices', {
      params: ofProject(connection),
    });
    await showList(output, await answered(deleted), DELETED_VIEW);
  });
}
