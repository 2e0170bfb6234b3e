import { ROLE_SUMMARIES } from '@howdah/contract/permissions';
import type { Role } from '@howdah/contract/types';
import { Type } from 'typebox';
import { body, type Cloud } from '../cloud.ts';
import { addTool, closed, type ToolServer } from '../tool.ts';

const nothing = Type.Object({}, closed);

export function addProjectTools(server: ToolServer, { client, projectId }: Cloud): void {
  addTool(
    server,
    'whoami',
    {
      title: 'What this key may do',
      description: 'The API key, its role and its limits, and its project. Free; call it first.',
      kind: 'read',
      input: nothing,
    },
    async () => {
      const { public_key, name, project } = body(await client.GET('/auth/info')).api_key;
      const key = body(
        await client.GET('/projects/{project_id}/keys/{public_key}', {
          params: { path: { project_id: project.id, public_key } },
        }),
      );
      const { role, fork_only, dry_run_only, expires_at } = key;
      return {
        summary:
          `Key ${name} with the role ${role} in the project ` +
          `${project.name}: it ${mayDo(key)}.`,
        data: {
          public_key,
          name,
          role,
          fork_only,
          dry_run_only,
          expires_at,
          project: { id: project.id, name: project.name },
        },
      };
    },
  );

  addTool(
    server,
    'get_usage',
    {
      title: 'Usage and limits of the project',
      description:
        'How many services, cores and gigabytes the project uses, and its limits. Free. ' +
        'Look here before you create several services. With by_service also what each service ' +
        'takes (memory, disk of its own and shared, backups), the reason, and what would make it ' +
        'less: that measures their disk, which takes some seconds.',
      kind: 'read',
      input: Type.Object({ by_service: Type.Optional(Type.Boolean()) }, closed),
    },
    async ({ by_service: byService }) => {
      const params = { path: { project_id: await projectId() } };
      const { used, in_use, limits } = body(await client.GET('/projects/{project_id}', { params }));
      const services =
        byService === true
          ? { services: body(await client.GET('/projects/{project_id}/usage', { params })) }
          : {};
      return {
        summary:
          `${used.services} services and ${used.replica_sets} read replica sets, ` +
          `${used.cpu_millis / 1000} cores guaranteed, ${in_use.cpu_millis / 1000} in use, ` +
          `${used.memory_gbs} GB.`,
        data: { used, in_use, limits, ...services },
      };
    },
  );

  addTool(
    server,
    'list_regions',
    {
      title: 'What this installation offers',
      description:
        'Service types with their PostgreSQL version, sizes, and what a fork costs on this ' +
        'file system: fork_cost. Free. Look here before a create with a type or size.',
      kind: 'read',
      input: nothing,
    },
    async () => {
      const regions = body(
        await client.GET('/projects/{project_id}/regions', {
          params: { path: { project_id: await projectId() } },
        }),
      );
      return {
        summary: regions.map(({ code, fork_cost }) => `${code}: forks: ${fork_cost}`).join('; '),
        data: { regions },
      };
    },
  );
}

function mayDo({
  role,
  fork_only,
  dry_run_only,
}: {
  role: Role;
  fork_only: boolean;
  dry_run_only: boolean;
}): string {
  if (dry_run_only) return 'makes dry runs, and changes nothing';
  if (fork_only) return 'reads, forks, and changes nothing but its own forks';
  return ROLE_SUMMARIES[role];
}
