import type { Schemas } from '@howdah/client';
import { SERVICE_STATUSES } from '@howdah/contract/status';
import { Option, type Command } from 'commander';
import { given, noun, verb, type Printing } from '../command.ts';
import { answered, connect, findCa } from '../connection.ts';
import { findPath, findService, listDeleted, ofProject, readService } from '../find.ts';
import { followService } from '../follow.ts';
import { serviceNames, vpcNames } from '../names.ts';
import { show, showList } from '../output.ts';
import { DELETED_VIEW, MEMBER_VIEW, serviceView } from '../views.ts';
import { noteProblems } from '../problems.ts';
import { addServiceLogs } from './logs.ts';
import { addServiceOperations } from './operation.ts';
import { addChanges } from './service-changes.ts';
import { addCreates } from './service-create.ts';
import { addEnds } from './service-delete.ts';
import { addCreateFromKit } from './service-from-kit.ts';
import { addRecover } from './service-recover.ts';
import { addMove } from './service-move.ts';
import { addUpgrade } from './service-upgrade.ts';

type Service = Schemas['Service'];

export function addService(program: Command): void {
  const service = noun(program, 'service', 'Create and manage services.');
  addReads(service);
  addServiceLogs(service);
  addServiceOperations(service);
  addCreates(service);
  addCreateFromKit(service);
  addRecover(service);
  addUpgrade(service);
  addMove(service);
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
      await noteProblems(connection, services);
    });

  verb(service, 'get <service>', {
    does: 'Show a service.',
    example: 'eval "$(howdah service get orders -o env)"',
    takes: ['output'],
  })
    .option('--wait', 'wait until no operation is running, and print its steps')
    .action(async (name: string, { output, wait }: Printing & { wait?: true }) => {
      const connection = await connect();
      const named = await findService(connection, name);
      if (wait === true) await followService(connection, named.service_id);
      const found = wait === true ? await readService(connection, named.service_id) : named;
      const view = serviceView(await findCa(connection.apiUrl), {
        ...given(
          'serviceName',
          found.forked_from === undefined ? undefined : await serviceNames(connection, output),
        ),
        ...given(
          'vpcName',
          found.vpc_endpoint === undefined ? undefined : await vpcNames(connection, output),
        ),
      });
      await show(output, found, view);
      await noteProblems(connection, [found]);
    });

  verb(service, 'members <service>', {
    does: 'Show the servers of a service: its primary and its standbys.',
    example: 'howdah service members orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const servers = connection.client.GET(
      '/projects/{project_id}/services/{service_id}/members',
      await findPath(connection, name),
    );
    await showList(output, await answered(servers), MEMBER_VIEW);
  });

  verb(service, 'list-deleted', {
    does: 'List deleted services that can be restored.',
    example: 'howdah service list-deleted',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    await showList(output, await listDeleted(await connect()), DELETED_VIEW);
  });
}
