import { Type } from 'typebox';
import { body, findService, describe, type Cloud } from '../cloud.ts';
import { addTool, closed, service, type ToolServer } from '../tool.ts';
import { about } from './outcome.ts';
import { CLIENT_SETUP, CLIENTS, isClientName, programOf } from '@howdah/contract/connect';
import { LIVE_STATUSES } from '@howdah/contract';

export function addServiceTools(server: ToolServer, cloud: Cloud): void {
  addListServices(server, cloud);
  addGetService(server, cloud);
}

function addListServices(server: ToolServer, cloud: Cloud): void {
  const { client, projectId } = cloud;
  addTool(
    server,
    'list_services',
    {
      title: 'List services',
      description:
        'All services of the project, with status, size and endpoint; ' +
        'or those that were deleted and can still be restored. Free.',
      kind: 'read',
      input: Type.Object(
        {
          status: Type.Optional(
            Type.Enum([...LIVE_STATUSES], { description: 'only those with this status' }),
          ),
          deleted: Type.Optional(
            Type.Boolean({
              description: 'true: the deleted ones that restore_service brings back',
            }),
          ),
        },
        closed,
      ),
    },
    async ({ status, deleted }) => {
      const path = { project_id: await projectId() };
      if (deleted === true) {
        const services = body(
          await client.GET('/projects/{project_id}/deletedServices', { params: { path } }),
        );
        return {
          summary: `${services.length} deleted services can be restored.`,
          data: { services },
        };
      }
      const query = status === undefined ? {} : { status };
      const services = body(
        await client.GET('/projects/{project_id}/services', { params: { path, query } }),
      ).map(describe);
      return {
        summary:
          services.map((one) => `${one.name} (${one.service_id}) ${one.status}`).join(', ') ||
          'No services.',
        data: { services },
      };
    },
  );
}

function addGetService(server: ToolServer, cloud: Cloud): void {
  addTool(
    server,
    'get_service',
    {
      title: 'Show a service',
      description:
        'Status, size, endpoint, what it uses, and warnings; ' +
        'with `client`, a program that connects. Free. ' +
        'Passwords are never shown again.',
      kind: 'read',
      input: Type.Object(
        {
          service,
          client: Type.Optional(
            Type.Enum(Object.keys(CLIENTS).filter(isClientName), {
              description: 'the client of a program that connects; it reads PGPASSWORD',
            }),
          ),
        },
        closed,
      ),
    },
    async (args) => {
      const found = await findService(cloud, args.service);
      const { summary, data } = about(found);
      if (args.client === undefined) return { summary, data };
      const { host, port } = found.vpc_endpoint ?? found.endpoint;
      const program = programOf(args.client, { host, port, ca: null });
      return { summary, data: { ...data, program, setup: CLIENT_SETUP[args.client] } };
    },
  );
}
