import type { McpServer } from '@modelcontextprotocol/server';
import { permissionOfAction, subjectOf } from '@howdah/contract';
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
} from '../tool.ts';
import { became } from './outcome.ts';

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
        'Deletes a service with its data, pooler and read replica sets; restore_service can restore it for a day, and its disk space is free only after that. Refused for PROD unless the key is admin. Delete your own forks when you are done; ask the user before anything else.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const named = await findService(cloud, args.service);
      await refuseDenied(cloud, permissionOfAction('delete'), subjectOf(named));
      const found = confirmed(named, args.confirm);
      const { data, response } = await client.DELETE(
        '/projects/{project_id}/services/{service_id}',
        {
          params: { path: pathOf(found), query: askedAs(args).query },
          signal,
        },
      );
      const { done } = await settle(
        cloud,
        found,
        'DELETED',
        args.wait_seconds ?? WAIT_SECONDS,
        signal,
      );
      return {
        summary: done
          ? `${found.name} (${found.service_id}) is deleted; restore_service can restore it for a ` +
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
      const { data, response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/restore',
        {
          params: {
            path: { project_id: await projectId(), service_id: args.service_id },
            ...askedAs(args),
          },
          signal,
        },
      );
      return became(
        cloud,
        body({ data }),
        response,
        'READY',
        args.wait_seconds ?? WAIT_SECONDS,
        signal,
      );
    },
  );
}
