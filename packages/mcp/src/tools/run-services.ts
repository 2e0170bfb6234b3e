import { RESET_TARGETS } from '@howdah/contract';
import { Type } from 'typebox';
import { findService, type Cloud, type Service } from '../cloud.ts';
import {
  addTool,
  changing,
  closed,
  confirm,
  confirmedForProd,
  confirmOfProd,
  service,
  wait,
  type ToolServer,
} from '../tool.ts';
import { change, findToEnd, SERVICE, type Waiting } from './change.ts';
import { size, sizeIn } from './create-services.ts';
import { Problem } from '../problem.ts';

/** Tools that take nothing but a service; `ends`: those that end its sessions need its name. */
const PLAIN_TOOLS = [
  {
    name: 'start_service',
    verb: 'start',
    ends: false,
    target: 'READY',
    title: 'Start a service',
    description:
      'Starts a paused service, or repairs an UNSTABLE one. Takes about a second; ' +
      'its memory is in use from then on.',
  },
  {
    name: 'stop_service',
    verb: 'stop',
    ends: true,
    target: 'PAUSED',
    title: 'Stop a service',
    description:
      'Pauses a service: all its sessions end, nobody can connect until start_service. ' +
      'Data, endpoint and password stay; memory and cores are freed. ' +
      'Refused for PROD unless the key is admin. Ask the user first.',
  },
  {
    name: 'restart_service',
    verb: 'restart',
    ends: true,
    target: 'READY',
    title: 'Restart a service',
    description:
      'Starts the servers of a service again: its sessions end, new ones wait about a second. ' +
      'It applies the update that get_service shows as the warning MINOR_VERSION. Refused for ' +
      'PROD unless the key is admin. Ask the user first.',
  },
] as const;

export function addRunTools(server: ToolServer, cloud: Cloud): void {
  for (const tool of PLAIN_TOOLS) addPlainTool(server, cloud, tool);
  addResizeService(server, cloud);
  addResetService(server, cloud);
  addUpgradeService(server, cloud);
}

function addPlainTool(
  server: ToolServer,
  cloud: Cloud,
  { name, verb, ends, target, title, description }: (typeof PLAIN_TOOLS)[number],
): void {
  const run = async (found: Service, args: Waiting, signal: AbortSignal) =>
    change(cloud, found, args, signal, target, (asked) =>
      cloud.client.POST(`${SERVICE}/${verb}`, asked),
    );
  if (ends) {
    const input = Type.Object({ service, confirm, ...wait, ...changing }, closed);
    addTool(server, name, { title, description, kind: 'destroy', input }, async (args, signal) =>
      run(await findToEnd(cloud, verb, args), args, signal),
    );
  } else {
    const input = Type.Object({ service, ...wait, ...changing }, closed);
    addTool(server, name, { title, description, kind: 'change', input }, async (args, signal) =>
      run(await findService(cloud, args.service), args, signal),
    );
  }
}

function addResizeService(server: ToolServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'resize_service',
    {
      title: 'Resize a service',
      description:
        'Gives a service another size. With cpu_millis or memory_gbs it restarts: ' +
        'its sessions end, new ones wait about a second. ' +
        'storage_gb alone needs no restart. PROD needs confirm. ' +
        'Check with get_service and get_metrics first whether it needs more.',
      kind: 'change',
      input: Type.Object(
        { service, ...size, confirm: confirmOfProd, ...wait, ...changing },
        closed,
      ),
    },
    async (args, signal) => {
      const found = await findService(cloud, args.service);
      const body = sizeIn(args);
      if (Object.keys(body).length === 0)
        throw new Problem(
          'cpu_millis, memory_gbs, storage_gb: all missing',
          'send one of them; list_regions shows the sizes',
        );
      confirmedForProd('resize', found, args);
      const target = found.status === 'PAUSED' ? 'PAUSED' : 'READY';
      return change(cloud, found, args, signal, target, (asked) =>
        client.POST(`${SERVICE}/resize`, { ...asked, body }),
      );
    },
  );
}

function addResetService(server: ToolServer, cloud: Cloud): void {
  const { client } = cloud;
  addTool(
    server,
    'reset_service',
    {
      title: 'Reset a fork',
      description:
        'Gives a fork the data of its parent again: of now, of the beginning of the fork, or of ' +
        'a moment. Id, endpoint and password stay; sessions end, and what was written to the ' +
        'fork is lost. About as fast as a fork. A fork-only key resets forks that it made. Ask ' +
        'the user before you reset a fork that is not your own.',
      kind: 'destroy',
      input: Type.Object(
        {
          service,
          confirm,
          target: Type.Optional(
            Type.Enum([...RESET_TARGETS], {
              description: 'NOW (default), BEGINNING, or PITR with target_time',
            }),
          ),
          target_time: Type.Optional(
            Type.String({ maxLength: 64, description: 'date-time; for PITR, and only there' }),
          ),
          ...wait,
          ...changing,
        },
        closed,
      ),
    },
    async (args, signal) => {
      const { target, target_time: time } = args;
      const found = await findToEnd(cloud, 'reset', args);
      const body = {
        confirm: found.name,
        ...(target === undefined ? {} : { target }),
        ...(time === undefined ? {} : { target_time: time }),
      };
      return change(cloud, found, args, signal, 'READY', (asked) =>
        client.POST(`${SERVICE}/reset`, { ...asked, body }),
      );
    },
  );
}

function addUpgradeService(server: ToolServer, cloud: Cloud): void {
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
      const { pg_version, try: attempt, undo } = args;
      const found = await findToEnd(cloud, 'upgrade', args);
      const body = {
        confirm: found.name,
        ...(pg_version === undefined ? {} : { pg_version }),
        ...(attempt === undefined ? {} : { try: attempt }),
        ...(undo === undefined ? {} : { undo }),
      };
      return change(cloud, found, args, signal, 'READY', (asked) =>
        client.POST(`${SERVICE}/upgrade`, { ...asked, body }),
      );
    },
  );
}
