import { Type } from 'typebox';
import { ENVIRONMENTS, NAME_MAX_CHARACTERS, SERVICE_TYPES } from '@howdah/contract';
import type { Schemas } from '@howdah/client';
import { STORAGE_GB } from '@howdah/contract/sizes';
import { body, findService, pathOf, type Cloud } from '../cloud.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  service,
  wait,
  WAIT_SECONDS,
  type ToolServer,
} from '../tool.ts';
import { created } from './outcome.ts';

export function addCreateTools(server: ToolServer, cloud: Cloud): void {
  addCreateService(server, cloud);
  addForkService(server, cloud);
}

const name = Type.String({ minLength: 1, maxLength: NAME_MAX_CHARACTERS });

function addCreateService(server: ToolServer, cloud: Cloud): void {
  const { client, projectId } = cloud;
  addTool(
    server,
    'create_service',
    {
      title: 'Create a service',
      description:
        'Creates an empty PostgreSQL service. Cost: about a second, 60 MB of disk, ' +
        'and its memory as long as it runs. The answer contains the password and a ' +
        'connection string, once: keep them. To work on existing data, use fork_service; ' +
        'delete what you no longer need.',
      kind: 'make',
      input: Type.Object(
        {
          name,
          service_type: Type.Optional(
            Type.Enum([...SERVICE_TYPES], {
              description: 'default: TIMESCALEDB where it is available',
            }),
          ),
          pg_version: Type.Optional(
            Type.String({
              maxLength: 2,
              description: 'major version of PostgreSQL, as list_regions has them',
            }),
          ),
          ...size,
          ...lifetime,
          region_code: Type.Optional(
            Type.String({ maxLength: 64, description: 'default: the first of list_regions' }),
          ),
          environment: Type.Optional(
            Type.Enum([...ENVIRONMENTS], {
              description: 'default DEV; PROD protects it from being deleted by mistake',
            }),
          ),
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { name: wanted, service_type, pg_version, region_code, environment } = args;
      const { wait_seconds = WAIT_SECONDS } = args;
      const { data, response } = await client.POST('/projects/{project_id}/services', {
        params: { path: { project_id: await projectId() }, ...askedAs(args) },
        body: {
          name: wanted,
          ...(service_type === undefined ? {} : { service_type }),
          ...(pg_version === undefined ? {} : { pg_version }),
          ...sizeIn(args),
          ...lifetimeIn(args),
          ...(region_code === undefined ? {} : { region_code }),
          ...(environment === undefined ? {} : { environment_tag: environment }),
        },
        signal,
      });
      return created(cloud, body({ data }), response, wait_seconds, signal, 'created');
    },
  );
}

function addForkService(server: ToolServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'fork_service',
    {
      title: 'Fork a service',
      description:
        'Creates a copy of a service with its data; nothing that you do to the copy affects ' +
        'the service. Cost: moments on btrfs and XFS, otherwise time and disk for a full ' +
        'copy (list_regions: fork_cost). The answer contains the password of the fork and a ' +
        'connection string, once. Try db_query with on_fork: true first if you only want to ' +
        'read. Delete the fork when done.',
      kind: 'make',
      input: Type.Object(
        {
          service,
          strategy: Type.Optional(
            Type.Enum(['NOW', 'LAST_SNAPSHOT', 'PITR'], {
              description:
                'NOW (default): as it is; LAST_SNAPSHOT: cheapest for the parent, ' +
                'and works when it is UNSTABLE; PITR: as it was at target_time',
            }),
          ),
          target_time: Type.Optional(
            Type.String({
              description: 'for PITR: 2026-01-31T12:00:00Z; list_backups shows the earliest',
            }),
          ),
          name: Type.Optional(name),
          pg_version: Type.Optional(
            Type.String({
              maxLength: 2,
              description: 'a newer major version of PostgreSQL, by a dump; not with PITR',
            }),
          ),
          ...size,
          ...lifetime,
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { strategy = 'NOW', target_time, pg_version, wait_seconds = WAIT_SECONDS } = args;
      const parent = await findService(cloud, args.service);
      const { data, response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/forkService',
        {
          params: { path: pathOf(parent), ...askedAs(args) },
          body: {
            fork_strategy: strategy,
            ...(target_time === undefined ? {} : { target_time }),
            ...(args.name === undefined ? {} : { name: args.name }),
            ...(pg_version === undefined ? {} : { pg_version }),
            ...sizeIn(args),
            ...lifetimeIn(args),
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
}

// When a service is deleted by itself, as arguments of tools.

const lifetime = {
  ttl_seconds: Type.Optional(
    Type.Integer({
      minimum: 1,
      description:
        'it is deleted by itself after so many seconds; for a fork that only you need, give one; ' +
        'set_expiry changes it. Default: as the key has it, else it stays',
    }),
  ),
};

const lifetimeIn = ({ ttl_seconds: ttl }: { ttl_seconds?: number }) =>
  ttl === undefined ? {} : { ttl_seconds: ttl };

// The size of a service, as an argument of tools.

export const size = {
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
        'gigabytes of disk for each of its servers; default: ' +
        '5 for each gigabyte of memory, at least 10; for a fork, that of its parent',
    }),
  ),
};
type Size = Pick<Schemas['CreateService'], 'storage_gb'> & {
  cpu_millis?: number;
  memory_gbs?: number;
};
/** The size in a request, without fields that the API chooses. */
export function sizeIn({ cpu_millis, memory_gbs, storage_gb }: Size): Size {
  return {
    ...(cpu_millis === undefined ? {} : { cpu_millis }),
    ...(memory_gbs === undefined ? {} : { memory_gbs }),
    ...(storage_gb === undefined ? {} : { storage_gb }),
  };
}
