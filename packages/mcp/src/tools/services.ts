import type { Schemas } from '@howdah/client';
import { STORAGE_GB } from '@howdah/contract/sizes';
import type { McpServer } from '@modelcontextprotocol/server';
import { Type } from 'typebox';
import {
  body,
  connectionString,
  describe,
  findService,
  pathOf,
  settle,
  type Cloud,
  type Service,
} from '../cloud.ts';
import { Problem } from '../problem.ts';
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
  type Outcome,
} from '../tool.ts';

const STATUSES = [
  'READY',
  'PAUSED',
  'UNSTABLE',
  'QUEUED',
  'CONFIGURING',
  'PAUSING',
  'RESUMING',
  'UPGRADING',
  'DELETING',
] as const;
const size = {
  cpu_millis: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: 'thousandths of a core; list_regions shows the sizes',
    }),
  ),
  memory_gbs: Type.Optional(
    Type.Integer({ minimum: 1, description: 'gigabytes; follows from cpu_millis' }),
  ),
  storage_gb: Type.Optional(
    Type.Integer({
      minimum: STORAGE_GB.min,
      maximum: STORAGE_GB.max,
      description:
        'gigabytes of disk for each of its servers; default: 5 for each of memory, 10 at least, and for a fork as its parent',
    }),
  ),
};
type Size = Pick<Schemas['CreateService'], 'storage_gb'> & {
  cpu_millis?: number;
  memory_gbs?: number;
};
const name = Type.String({ minLength: 1, maxLength: 128 });

export function addServiceTools(server: McpServer, cloud: Cloud): void {
  const { client, projectId } = cloud;

  addTool(
    server,
    'list_services',
    {
      title: 'List services',
      description:
        'All services of the project, with status, size and endpoint; or those that were deleted and can still be restored. Free.',
      kind: 'read',
      input: Type.Object(
        {
          status: Type.Optional(
            Type.Enum([...STATUSES], { description: 'only those with this status' }),
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

  addTool(
    server,
    'get_service',
    {
      title: 'Show a service',
      description:
        'Status, size, endpoint, what it uses, and warnings. Free. Passwords are never outcome again.',
      kind: 'read',
      input: Type.Object({ service }, closed),
    },
    async (args) => about(await findService(cloud, args.service)),
  );

  addTool(
    server,
    'create_service',
    {
      title: 'Create a service',
      description:
        'Makes an empty PostgreSQL service: about a second, 60 MB of disk, and its memory as long as it runs. The answer holds the password and a connection string, once: keep them. To work on existing data use fork_service; delete what you no longer need.',
      kind: 'make',
      input: Type.Object(
        {
          name,
          service_type: Type.Optional(
            Type.Enum(['TIMESCALEDB', 'POSTGRES', 'VECTOR'], {
              description: 'default: TIMESCALEDB where it can be had',
            }),
          ),
          ...size,
          environment: Type.Optional(
            Type.Enum(['DEV', 'PROD'], {
              description: 'default DEV; PROD guards it from being deleted by mistake',
            }),
          ),
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { name: wanted, service_type, environment, wait_seconds = WAIT_SECONDS } = args;
      const { data, response } = await client.POST('/projects/{project_id}/services', {
        params: { path: { project_id: await projectId() }, ...askedAs(args) },
        body: {
          name: wanted,
          ...(service_type === undefined ? {} : { service_type }),
          ...sizeIn(args),
          ...(environment === undefined ? {} : { environment_tag: environment }),
        },
        signal,
      });
      return created(cloud, body({ data }), response, wait_seconds, signal, 'created');
    },
  );

  addTool(
    server,
    'fork_service',
    {
      title: 'Fork a service',
      description:
        'Makes a copy of a service with its data, which never notices and is never changed by what you do to the copy. Cost: moments on btrfs and XFS, else as long and as much disk as the data is big (list_regions: fork_cost). The answer holds the password of the fork and a connection string, once. Try db_query with on_fork: true first if you only want to read. Delete the fork when done.',
      kind: 'make',
      input: Type.Object(
        {
          service,
          strategy: Type.Optional(
            Type.Enum(['NOW', 'LAST_SNAPSHOT', 'PITR'], {
              description:
                'NOW (default): as it is; LAST_SNAPSHOT: cheapest for the parent, and works when it is UNSTABLE; PITR: as it was at target_time',
            }),
          ),
          target_time: Type.Optional(
            Type.String({
              description: 'for PITR: 2026-01-31T12:00:00Z; list_backups says how far back',
            }),
          ),
          name: Type.Optional(name),
          ...size,
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { strategy = 'NOW', target_time, name: wanted, wait_seconds = WAIT_SECONDS } = args;
      const parent = await findService(cloud, args.service);
      const { data, response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/forkService',
        {
          params: { path: pathOf(parent), ...askedAs(args) },
          body: {
            fork_strategy: strategy,
            ...(target_time === undefined ? {} : { target_time }),
            ...(wanted === undefined ? {} : { name: wanted }),
            ...sizeIn(args),
          },
          signal,
        },
      );
      return created(
        cloud,
        body({ data }),
        response,
        wait_seconds,
        signal,
        `forked from ${parent.name}`,
      );
    },
  );

  addTool(
    server,
    'start_service',
    {
      title: 'Start a service',
      description:
        'Starts a paused service, or repairs an UNSTABLE one: about a second. Its memory is in use from then on.',
      kind: 'change',
      input: Type.Object({ service, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      const { data, response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/start',
        {
          params: { path: pathOf(found), ...askedAs(args) },
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

  addTool(
    server,
    'stop_service',
    {
      title: 'Stop a service',
      description:
        'Pauses a service: all its sessions end, nobody can connect until start_service. Data, endpoint and password stay; memory and cores are free. Refused for PROD unless the key is admin. Ask the user first.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const found = confirmed(await findService(cloud, args.service), args.confirm);
      const { data, response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/stop',
        {
          params: { path: pathOf(found), ...askedAs(args) },
          signal,
        },
      );
      return became(
        cloud,
        body({ data }),
        response,
        'PAUSED',
        args.wait_seconds ?? WAIT_SECONDS,
        signal,
      );
    },
  );

  addTool(
    server,
    'resize_service',
    {
      title: 'Resize a service',
      description:
        'Gives a service another size. With cpu_millis or memory_gbs it restarts: its sessions end, new ones wait about a second. storage_gb alone needs no restart. Look at get_service and get_metrics first whether it needs more.',
      kind: 'change',
      input: Type.Object({ service, ...size, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      if (Object.keys(sizeIn(args)).length === 0)
        throw new Problem(
          'cpu_millis, memory_gbs, storage_gb: all missing',
          'send one of them; list_regions shows the sizes',
        );
      const { data, response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/resize',
        {
          params: { path: pathOf(found), ...askedAs(args) },
          body: sizeIn(args),
          signal,
        },
      );
      return became(
        cloud,
        body({ data }),
        response,
        found.status === 'PAUSED' ? 'PAUSED' : 'READY',
        args.wait_seconds ?? WAIT_SECONDS,
        signal,
      );
    },
  );

  addTool(
    server,
    'delete_service',
    {
      title: 'Delete a service',
      description:
        'Deletes a service with its data, pooler and read replica sets; for a day restore_service brings it back, and only then its disk is free. Refused for PROD unless the key is admin. Delete your own forks when you are done; ask the user before anything else.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const found = confirmed(await findService(cloud, args.service), args.confirm);
      const { response } = await client.DELETE('/projects/{project_id}/services/{service_id}', {
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
          ? `${found.name} (${found.service_id}) is deleted; restore_service brings it back for a while.`
          : `${found.name} is being deleted.`,
        data: {
          service_id: found.service_id,
          deleted: done,
          operation_id: response.headers.get('Operation-Id'),
        },
      };
    },
  );

  addTool(
    server,
    'restore_service',
    {
      title: 'Restore a deleted service',
      description:
        'Brings a deleted service back with its id, endpoint, data and password. list_services with deleted: true shows which can be.',
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

/** The size in a request, without what is left to the API. */
function sizeIn({ cpu_millis, memory_gbs, storage_gb }: Size): Size {
  return {
    ...(cpu_millis === undefined ? {} : { cpu_millis }),
    ...(memory_gbs === undefined ? {} : { memory_gbs }),
    ...(storage_gb === undefined ? {} : { storage_gb }),
  };
}

function about(found: Service): Outcome {
  const data = describe(found);
  return {
    summary: `${data.name} (${data.service_id}) is ${data.status} at ${data.endpoint}.`,
    data,
  };
}

/** A service after a change that was waited for. */
async function became(
  cloud: Cloud,
  accepted: Service,
  response: Response,
  target: 'READY' | 'PAUSED',
  waitSeconds: number,
  signal: AbortSignal,
): Promise<Outcome> {
  const { service: seen, done } = await settle(cloud, accepted, target, waitSeconds, signal);
  const operation_id = response.headers.get('Operation-Id');
  const outcome = about(seen ?? accepted);
  return {
    summary: done ? outcome.summary : `${outcome.summary} Not ${target} yet: wait_for_operation.`,
    data: { ...outcome.data, operation_id },
  };
}

/** A new service with its password, which is outcome here and nowhere else. */
async function created(
  cloud: Cloud,
  accepted: Service,
  response: Response,
  waitSeconds: number,
  signal: AbortSignal,
  how: string,
): Promise<Outcome> {
  const password = accepted.initial_password ?? '';
  const secret = { password, connection_string: connectionString(accepted, password) };
  // Whatever becomes of the wait, the password is outcome.
  const { data } = await became(cloud, accepted, response, 'READY', waitSeconds, signal).catch(() =>
    about(accepted),
  );
  return {
    summary: `${accepted.name} (${accepted.service_id}) was ${how} and is ${String(data['status'])}. Keep the password: it is outcome once.`,
    data: { ...data, ...secret },
  };
}
