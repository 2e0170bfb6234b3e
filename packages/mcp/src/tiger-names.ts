/**
 * Tools under the names and arguments of Tiger Cloud's MCP server, for instructions that were
 * written for it. Results are those of Howdah. Listed only with `howdah mcp --tiger-names`.
 */
import { SERVICE_SIZES } from '@howdah/contract/sizes';
import { fromJsonSchema } from '@modelcontextprotocol/server';
import { Type, type Static, type TObject } from 'typebox';
import { closed, confirm, WAIT_SECONDS, type ToolServer } from './tool.ts';

type Arguments = Record<string, unknown>;

export function addTigerNames(server: ToolServer): void {
  addServiceNames(server);
  addMakingNames(server);
  addReadingNames(server);
}

const service_id = Type.String({ minLength: 1, maxLength: 128, description: 'service_id or name' });
const waiting = {
  wait: Type.Optional(
    Type.Boolean({ description: `true: wait up to ${WAIT_SECONDS} s; default: return at once` }),
  ),
};
const sizes = SERVICE_SIZES.map(({ cpuMillis, memoryGbs }) => ({
  words: `${cpuMillis / 1000} CPU/${memoryGbs} GB`,
  cpuMillis,
}));
const cpu_memory = Type.Enum(sizes.map(({ words }) => words));
const optionalText = Type.Optional(Type.String({ minLength: 1, maxLength: 128 }));

/** Fields of our tools by Tiger's arguments that are given. */
const waitOf = ({ wait }: { wait?: boolean }): Arguments =>
  wait === true ? {} : { wait_seconds: 0 };
const sizeOf = ({ cpu_memory: wanted }: { cpu_memory?: string }): Arguments => {
  const size = sizes.find(({ words }) => words === wanted);
  return size === undefined ? {} : { cpu_millis: size.cpuMillis };
};
const given = (fields: Arguments): Arguments =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

function addServiceNames(server: ToolServer): void {
  addName(server, 'service_list', 'list_services', Type.Object({}, closed), () => ({}));
  addName(
    server,
    'service_get',
    'get_service',
    Type.Object({ service_id }, closed),
    ({ service_id: id }) => ({
      service: id,
    }),
  );
  addName(
    server,
    'service_start',
    'start_service',
    Type.Object({ service_id, ...waiting }, closed),
    (args) => ({
      service: args.service_id,
      ...waitOf(args),
    }),
  );
  addName(
    server,
    'service_stop',
    'stop_service',
    Type.Object({ service_id, confirm, ...waiting }, closed),
    (args) => ({
      service: args.service_id,
      confirm: args.confirm,
      ...waitOf(args),
    }),
  );
  addName(
    server,
    'service_resize',
    'resize_service',
    Type.Object({ service_id, cpu_memory, confirm: Type.Optional(confirm), ...waiting }, closed),
    (args) => ({
      service: args.service_id,
      ...given({ confirm: args.confirm }),
      ...sizeOf(args),
      ...waitOf(args),
    }),
  );
  addName(
    server,
    'service_update_password',
    'reset_password',
    Type.Object({ service_id, password: Type.String(), confirm: Type.Optional(confirm) }, closed),
    ({ service_id: service, password, confirm: name }) => ({
      service,
      password,
      ...given({ confirm: name }),
    }),
  );
}

/** Tiger's addons as a type of service. */
const typeOf = (addons: readonly string[]): string => {
  if (addons.includes('time-series')) return 'TIMESCALEDB';
  return addons.includes('ai') ? 'VECTOR' : 'POSTGRES';
};

function addMakingNames(server: ToolServer): void {
  addName(
    server,
    'service_create',
    'create_service',
    Type.Object(
      {
        name: Type.String({ minLength: 1, maxLength: 128 }),
        addons: Type.Optional(Type.Array(Type.Enum(['time-series', 'ai']))),
        region: optionalText,
        cpu_memory: Type.Optional(cpu_memory),
        ...waiting,
      },
      closed,
    ),
    ({ name, addons, region, ...more }) => ({
      name,
      ...given({ region_code: region }),
      ...(addons === undefined ? {} : { service_type: typeOf(addons) }),
      ...sizeOf(more),
      ...waitOf(more),
    }),
  );
  addName(
    server,
    'service_fork',
    'fork_service',
    Type.Object(
      {
        service_id,
        name: optionalText,
        fork_strategy: Type.Enum(['NOW', 'LAST_SNAPSHOT', 'PITR']),
        target_time: optionalText,
        cpu_memory: Type.Optional(cpu_memory),
        ...waiting,
      },
      closed,
    ),
    ({ service_id: service, fork_strategy: strategy, name, target_time, ...more }) => ({
      service,
      strategy,
      ...given({ name, target_time }),
      ...sizeOf(more),
      ...waitOf(more),
    }),
  );
}

function addReadingNames(server: ToolServer): void {
  addName(
    server,
    'service_logs',
    'get_logs',
    Type.Object(
      {
        service_id,
        tail: Type.Optional(Type.Integer({ minimum: 1, maximum: 500, default: 100 })),
        since: optionalText,
        until: optionalText,
      },
      closed,
    ),
    ({ service_id: service, tail = 100, since, until }) => ({
      service,
      limit: tail,
      ...given({ since, until }),
    }),
  );
  addName(
    server,
    'db_execute_query',
    'db_query',
    Type.Object(
      {
        service_id,
        query: Type.String({ minLength: 1, description: 'one statement that reads' }),
        parameters: Type.Optional(Type.Array(Type.String())),
        timeout_seconds: Type.Optional(Type.Integer({ minimum: 1, maximum: 60, default: 30 })),
      },
      closed,
    ),
    ({ service_id: service, query: sql, parameters, timeout_seconds: seconds = 30 }) => ({
      service,
      sql,
      ...given({ parameters }),
      timeout_ms: seconds * 1000,
    }),
  );
}

/** @param toOurs the arguments of the tool by those of Tiger's */
function addName<Input extends TObject>(
  server: ToolServer,
  name: string,
  ours: string,
  input: Input,
  toOurs: (args: Static<Input>) => Arguments,
): void {
  const tool = server.tools.get(ours);
  if (tool === undefined) throw new Error(`there is no tool ${ours} for the name ${name}`);
  server.registerTool(
    name,
    {
      description: `The name that Tiger Cloud's server has for ${ours}, which has more arguments.`,
      inputSchema: fromJsonSchema<Static<Input>>(input),
      annotations: tool.annotations,
    },
    async (args, context) => tool.run(toOurs(args), context),
  );
}
