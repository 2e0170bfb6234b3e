import type { McpServer } from '@modelcontextprotocol/server';
import { PURGE } from '@howdah/contract';
import { Type } from 'typebox';
import { body, findService, refuseDenied, type Cloud } from '../cloud.ts';
import { Problem } from '../problem.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  confirm,
  confirmed,
  service,
  type Confirmable,
} from '../tool.ts';

/** The only tool whose effect is final. */
export function addPurgeTool(server: McpServer, cloud: Cloud): void {
  addTool(
    server,
    'purge_service',
    {
      title: 'Remove a service for good',
      description:
        'Removes a service, or one that delete_service deleted, with its data and backups: restore_service cannot bring it back. Its disk space is free soon after. Needs an admin key. Use it only when disk space is needed; delete_service is enough otherwise. Ask the user first, always.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...changing }, closed),
    },
    async (args, signal) => {
      const found = await findAlsoDeleted(cloud, args.service);
      await refuseDenied(cloud, PURGE, { createdBy: found.created_by });
      const { service_id, name } = confirmed(found, args.confirm);
      const query = { ...askedAs(args).query, purge: 'true' as const, confirm: args.confirm };
      const { response } = await cloud.client.DELETE(
        '/projects/{project_id}/services/{service_id}',
        {
          params: { path: { project_id: await cloud.projectId(), service_id }, query },
          signal,
        },
      );
      return {
        summary: `${name} (${service_id}) is being removed for good.`,
        data: { service_id, operation_id: response.headers.get('Operation-Id') },
      };
    },
  );
}

/** A service, or a deleted one, by its id or name. */
async function findAlsoDeleted(
  cloud: Cloud,
  nameOrId: string,
): Promise<Confirmable & { service_id: string; created_by?: string | undefined }> {
  const path = { project_id: await cloud.projectId() };
  const deleted = body(
    await cloud.client.GET('/projects/{project_id}/deletedServices', { params: { path } }),
  );
  const [found, another] = deleted.filter(
    ({ service_id, name }) => service_id === nameOrId || name === nameOrId,
  );
  if (found?.service_id !== nameOrId) {
    const services = body(
      await cloud.client.GET('/projects/{project_id}/services', { params: { path } }),
    );
    // A service with the name precedes a deleted one, which must then be named by its id.
    if (found === undefined || services.some(({ name }) => name === nameOrId))
      return findService(cloud, nameOrId);
    if (another !== undefined)
      throw new Problem(
        `several deleted services are named ${JSON.stringify(nameOrId)}`,
        'call again with the service_id of one of them; list_services with deleted: true shows them',
      );
  }
  return { ...found, metadata: { environment: found.environment } };
}
