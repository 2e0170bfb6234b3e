import { isId, PURGE } from '@howdah/contract';
import { Type } from 'typebox';
import {
  body,
  chooseNamed,
  findService,
  pathOf,
  refuseDenied,
  settle,
  type Cloud,
} from '../cloud.ts';
import {
  addTool,
  askedAs,
  askUser,
  changing,
  closed,
  confirm,
  confirmed,
  service,
  wait,
  WAIT_SECONDS,
  type Confirmable,
  type ToolServer,
} from '../tool.ts';
import { change, findToEnd, SERVICE } from './change.ts';
import { Problem } from '../problem.ts';

const DELETED_SHOWN = 'list_services with deleted: true shows them';

export function addDeleteTools(server: ToolServer, cloud: Cloud): void {
  addDeleteService(server, cloud);
  addRestoreService(server, cloud);
}

function addDeleteService(server: ToolServer, cloud: Cloud): void {
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

function addRestoreService(server: ToolServer, cloud: Cloud): void {
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
          service,
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const path = { project_id: await projectId() };
      const deleted = body(
        await client.GET('/projects/{project_id}/deletedServices', { params: { path } }),
      );
      const known = chooseNamed(args.service, deleted, DELETED_SHOWN);
      if (known === null && !isId(args.service))
        throw new Problem(
          `no deleted service has the name or id ${JSON.stringify(args.service)}`,
          DELETED_SHOWN,
          'NOT_FOUND',
        );
      // The API explains an id that it cannot restore.
      const found = { ...path, service_id: known?.service_id ?? args.service };
      return change(cloud, found, args, signal, 'READY', (asked) =>
        client.POST(`${SERVICE}/restore`, asked),
      );
    },
  );
}

/** The only tool whose effect is final. */
export function addPurgeTool(server: ToolServer, cloud: Cloud): void {
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
      if (found.metadata.environment === 'PROD' && args.dry_run !== true) askUser(found);
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
  if (!deleted.some(({ service_id }) => service_id === nameOrId)) {
    const services = body(
      await cloud.client.GET('/projects/{project_id}/services', { params: { path } }),
    );
    // A service with the name precedes a deleted one, which must then be named by its id.
    if (services.some(({ name }) => name === nameOrId)) return findService(cloud, nameOrId);
  }
  const found = chooseNamed(nameOrId, deleted, DELETED_SHOWN);
  if (found === null) return findService(cloud, nameOrId);
  return { ...found, metadata: { environment: found.environment } };
}
