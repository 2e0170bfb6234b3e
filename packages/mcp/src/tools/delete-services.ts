import type { McpServer } from '@modelcontextprotocol/server';
import { PURGE } from '@howdah/contract';
import { Type } from 'typebox';
import { body, findService, pathOf, refuseDenied, settle, type Cloud } from '../cloud.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  confirm,
  confirmed,
  service,
  wait,
  WAIT_SECONDS,
  type Confirmable,
} from '../tool.ts';
import { change, findToEnd, SERVICE } from './change.ts';
import { Problem } from '../problem.ts';

export function addDeleteTools(server: McpServer, cloud: Cloud): void {
  addDeleteService(server, cloud);
  addRestoreService(server, cloud);
}

function addDeleteService(server: McpServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'delete_service',
    {
      title: 'Delete a service',
      description:
        'Deletes a service with its data, pooler and read replica sets; ' +
        'restore_service can restore it for a day, and its disk space is free only after ' +
        'that. Refused for PROD unless the key is admin. ' +
        'Delete your own forks when you are done; ask the user before anything else.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const found = await findToEnd(cloud, 'delete', args);
      const { data, response } = await client.DELETE(SERVICE, {
        params: { path: pathOf(found), query: askedAs(args).query },
        signal,
      });
      const { done } = await settle(
        cloud,
        found,
        'DELETED',
        args.wait_seconds ?? WAIT_SECONDS,
        signal,
      );
      return {
        summary: done
          ? `${found.name} (${found.service_id}) is deleted; ` +
            'restore_service can restore it for a ' +
            `while. ${data?.restore_note ?? ''}`.trim()
          : `${found.name} is being deleted.`,
        data: {
          service_id: found.service_id,
          deleted: done,
          operation_id: response.headers.get('Operation-Id'),
        },
      };
    },
  );
}

function addRestoreService(server: McpServer, cloud: Cloud): void {
  const { client, projectId } = cloud;
  addTool(
    server,
    'restore_service',
    {
      title: 'Restore a deleted service',
      description:
        'Restores a deleted service with its id, endpoint, data and password; one whose data ' +
        'was removed from the machine comes back from a repository, which takes longer. ' +
        'list_services with deleted: true shows which services can be restored.',
      kind: 'change',
      input: Type.Object(
        {
          service_id: Type.String({
            description: 'its id: names of deleted services may be taken',
          }),
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const found = { project_id: await projectId(), service_id: args.service_id };
      return change(cloud, found, args, signal, 'READY', (asked) =>
        client.POST(`${SERVICE}/restore`, asked),
      );
    },
  );
}

/** The only tool whose effect is final. */
export function addPurgeTool(server: McpServer, cloud: Cloud): void {
  addTool(
    server,
    'purge_service',
    {
      title: 'Remove a service for good',
      description:
        'Removes a service, or one that delete_service deleted, with its data and backups: ' +
        'restore_service cannot bring it back. Its disk space is free soon after. ' +
        'Needs an admin key. Use it only when disk space is needed; ' +
        'delete_service is enough otherwise. Ask the user first, always.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...changing }, closed),
    },
    async (args, signal) => {
      const found = await findAlsoDeleted(cloud, args.service);
      await refuseDenied(cloud, PURGE, { createdBy: found.created_by });
      const { service_id, name } = confirmed(found, args.confirm);
      const query = { ...askedAs(args).query, purge: 'true' as const, confirm: args.confirm };
      const { response } = await cloud.client.DELETE(SERVICE, {
        params: { path: { project_id: await cloud.projectId(), service_id }, query },
        signal,
      });
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
        'call again with the service_id of one of them; ' +
          'list_services with deleted: true shows them',
      );
  }
  return { ...found, metadata: { environment: found.environment } };
}
