import type { McpServer } from '@modelcontextprotocol/server';
import { permissionOfAction, subjectOf } from '@howdah/contract';
import { Type } from 'typebox';
import { body, findService, pathOf, refuseDenied, type Cloud } from '../cloud.ts';
import {
  addTool,
  askedAs,
  changing,
  closed,
  confirm,
  confirmed,
  confirmedForProd,
  confirmOfProd,
  service,
  wait,
  WAIT_SECONDS,
} from '../tool.ts';
import { size, sizeIn } from './create-services.ts';
import { became } from './outcome.ts';
import { Problem } from '../problem.ts';

export function addRunTools(server: McpServer, cloud: Cloud): void {
  addStartService(server, cloud);
  addStopService(server, cloud);
  addRestartService(server, cloud);
  addResizeService(server, cloud);
  addUpgradeService(server, cloud);
}

function addStartService(server: McpServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'start_service',
    {
      title: 'Start a service',
      description:
        'Starts a paused service, or repairs an UNSTABLE one. Takes about a second; its memory is in use from then on.',
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
}

function addStopService(server: McpServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'stop_service',
    {
      title: 'Stop a service',
      description:
        'Pauses a service: all its sessions end, nobody can connect until start_service. Data, endpoint and password stay; memory and cores are freed. Refused for PROD unless the key is admin. Ask the user first.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const named = await findService(cloud, args.service);
      await refuseDenied(cloud, permissionOfAction('stop'), subjectOf(named));
      const found = confirmed(named, args.confirm);
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
}

function addRestartService(server: McpServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'restart_service',
    {
      title: 'Restart a service',
      description:
        'Starts the servers of a service again: its sessions end, new ones wait about a second. ' +
        'It applies the update that get_service shows as the warning MINOR_VERSION. Refused for ' +
        'PROD unless the key is admin. Ask the user first.',
      kind: 'destroy',
      input: Type.Object({ service, confirm, ...wait, ...changing }, closed),
    },
    async (args, signal) => {
      const named = await findService(cloud, args.service);
      await refuseDenied(cloud, permissionOfAction('restart'), subjectOf(named));
      const found = confirmed(named, args.confirm);
      const { data, response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/restart',
        { params: { path: pathOf(found), ...askedAs(args) }, signal },
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

function addResizeService(server: McpServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'resize_service',
    {
      title: 'Resize a service',
      description:
        'Gives a service another size. With cpu_millis or memory_gbs it restarts: its sessions end, new ones wait about a second. storage_gb alone needs no restart. PROD needs confirm. Check with get_service and get_metrics first whether it needs more.',
      kind: 'change',
      input: Type.Object(
        { service, ...size, confirm: confirmOfProd, ...wait, ...changing },
        closed,
      ),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      if (Object.keys(sizeIn(args)).length === 0)
        throw new Problem(
          'cpu_millis, memory_gbs, storage_gb: all missing',
          'send one of them; list_regions shows the sizes',
        );
      confirmedForProd('resize', found, args);
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
}

function addUpgradeService(server: McpServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'upgrade_service',
    {
      title: 'Upgrade PostgreSQL',
      description:
        'Moves a service to a newer major version of PostgreSQL in its place. Nobody can connect ' +
        'while its data is copied by a dump. With try, a copy is upgraded and removed: ' +
        'get_operation shows how long it took, or what fails. Try first, and ask the user. With ' +
        'undo, the data from before the last upgrade comes back; what was written since is lost.',
      kind: 'destroy',
      input: Type.Object(
        {
          service,
          confirm,
          pg_version: Type.Optional(
            Type.String({ maxLength: 2, description: 'the newer version; list_regions has them' }),
          ),
          try: Type.Optional(Type.Boolean({ description: 'with a copy only' })),
          undo: Type.Optional(Type.Boolean({ description: 'in place of pg_version' })),
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { pg_version, try: attempt, undo, wait_seconds = WAIT_SECONDS } = args;
      const named = await findService(cloud, args.service);
      await refuseDenied(cloud, permissionOfAction('upgrade'), subjectOf(named));
      const found = confirmed(named, args.confirm);
      const { data, response } = await client.POST(
        '/projects/{project_id}/services/{service_id}/upgrade',
        {
          params: { path: pathOf(found), ...askedAs(args) },
          body: {
            confirm: found.name,
            ...(pg_version === undefined ? {} : { pg_version }),
            ...(attempt === undefined ? {} : { try: attempt }),
            ...(undo === undefined ? {} : { undo }),
          },
          signal,
        },
      );
      return became(cloud, body({ data }), response, 'READY', wait_seconds, signal);
    },
  );
}
