import type { HowdahClient, Schemas } from '@howdah/client';
import { SERVICE_STATUSES } from '@howdah/contract/status';
import { ADDONS, ENVIRONMENTS, SERVICE_TYPES, type ServiceType } from '@howdah/contract/types';
import { Option, type Command } from 'commander';
import { endpointOf, placeOf, poolerOf, urlOf } from '../address.ts';
import {
  countOf,
  given,
  listOf,
  noun,
  oneOf,
  verb,
  type Changing,
  type Destroying,
  type Printing,
  type Waiting,
} from '../command.ts';
import { confirm, confirmName, readSecret } from '../confirm.ts';
import { answered, connect, findCa, type Connection } from '../connection.ts';
import { exitOf, Failure } from '../exit.ts';
import {
  findDeleted,
  findPath,
  findService,
  findVpc,
  ofProject,
  pathOf,
  readService,
} from '../find.ts';
import { follow } from '../follow.ts';
import { note, say, show, showAs, showChanged, showList } from '../output.ts';
import { DELETED_VIEW, MEMBER_VIEW, noteWarnings, serviceView } from '../views.ts';
import { addServiceLogs } from './logs.ts';
import { addServiceOperations } from './operation.ts';

type Service = Schemas['Service'];
type OfService = ReturnType<typeof pathOf>;
/** A call that changes a service. */
type Call = (
  client: HowdahClient,
  params: OfService,
) => Promise<{ data?: unknown; response: Response }>;

const CHANGES = ['output', 'dryRun', 'wait'] as const;

export function addService(program: Command): void {
  const service = noun(program, 'service', 'Make and manage services.');
  addReads(service);
  addServiceLogs(service);
  addServiceOperations(service);
  addCreate(service);
  addChanges(service);
  addEnds(service);
}

function addReads(service: Command): void {
  verb(service, 'list', {
    does: 'List the services.',
    example: 'howdah service list --status READY',
    takes: ['output'],
  })
    .addOption(
      new Option('--status <status>', 'only those with this status').choices(SERVICE_STATUSES),
    )
    .action(async ({ output, status }: Printing & { status?: Service['status'] }) => {
      const connection = await connect();
      const params = { ...ofProject(connection), query: given('status', status) };
      const services = await answered(
        connection.client.GET('/projects/{project_id}/services', { params }),
      );
      await showList(output, services, serviceView(null));
      services.forEach(noteWarnings);
    });

  verb(service, 'get <service>', {
    does: 'Show a service.',
    example: 'eval "$(howdah service get orders -o env)"',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const found = await findService(connection, name);
    await show(output, found, serviceView(await findCa(connection.apiUrl)));
    noteWarnings(found);
  });

  verb(service, 'members <service>', {
    does: 'Show the servers of a service: its primary and the replicas that stand by.',
    example: 'howdah service members orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const members = connection.client.GET(
      '/projects/{project_id}/services/{service_id}/members',
      await findPath(connection, name),
    );
    await showList(output, await answered(members), MEMBER_VIEW);
  });

  verb(service, 'list-deleted', {
    does: 'List deleted services that can be restored.',
    example: 'howdah service list-deleted',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const connection = await connect();
    const deleted = connection.client.GET('/projects/{project_id}/deletedServices', {
      params: ofProject(connection),
    });
    await showList(output, await answered(deleted), DELETED_VIEW);
  });
}

type Size = { cpuMillis?: string; memoryGbs?: string; storageGb?: string };
type CreateOptions = Waiting &
  Size & {
    name: string;
    addons?: string;
    type?: ServiceType;
    region?: string;
    replicas?: string;
    sync?: string;
    environment?: string;
    pooler?: true;
    vpc?: string;
  };
type ForkOptions = Waiting &
  Size & { name?: string; lastSnapshot?: true; at?: string; environment?: string };

function addCreate(service: Command): void {
  verb(service, 'create', {
    does: 'Create a service, wait until it is ready and print how to connect.',
    example: 'howdah service create --name orders --addons time-series,ai --cpu-millis 1000',
    takes: CHANGES,
  })
    .requiredOption('--name <name>', '1 to 128 characters')
    .option(
      '--addons <list>',
      'time-series, ai or both, separated by a comma; none for plain PostgreSQL',
    )
    .addOption(new Option('--type <type>', 'in place of --addons').choices(SERVICE_TYPES))
    .option('--cpu-millis <number>', 'thousandths of a core, or shared')
    .option('--memory-gbs <number>', 'gigabytes, or shared')
    .option('--storage-gb <number>', 'gigabytes of disk; default: by the size')
    .option('--replicas <number>', 'replicas that stand by, 0 to 2')
    .option('--sync <number>', 'how many of them have every write before it is acknowledged')
    .option('--environment <environment>', 'DEV or PROD; default: DEV')
    .option('--pooler', 'with a connection pooler')
    .option('--vpc <vpc>', 'the VPC that it is created in, by its id or name')
    .option('--region <region>', 'where; howdah region list shows the regions')
    .action(async (options: CreateOptions) => {
      const connection = await connect(options);
      const body = {
        name: options.name,
        ...sizeOf(options),
        ...given('addons', options.addons === undefined ? undefined : addonsOf(options.addons)),
        ...given('service_type', options.type),
        ...given('region_code', options.region),
        ...given('environment_tag', environmentOf(options.environment)),
        ...given('enable_pooler', options.pooler),
        ...given(
          'vpc_id',
          options.vpc === undefined ? undefined : (await findVpc(connection, options.vpc)).id,
        ),
        ...given(
          'replica_count',
          options.replicas === undefined ? undefined : countOf('--replicas', options.replicas),
        ),
        ...given(
          'sync_replica_count',
          options.sync === undefined ? undefined : countOf('--sync', options.sync),
        ),
      };
      const made = await connection.client.POST('/projects/{project_id}/services', {
        params: ofProject(connection),
        body,
      });
      await showCreated(connection, made, options);
    });

  verb(service, 'fork <service>', {
    does: 'Fork a service: as it is now, as of its last snapshot, or as it was at a point in time.',
    example: 'howdah service fork orders --at 2026-01-31T12:00:00Z --name before-the-migration',
    takes: CHANGES,
  })
    .option('--name <name>', 'default: the name of the parent and "-fork"')
    .option('--last-snapshot', 'from the last snapshot')
    .option(
      '--at <date-time>',
      'as it was then, like 2026-01-31T12:00:00Z; howdah backup list shows how far back',
    )
    .option('--cpu-millis <number>', "thousandths of a core, or shared; default: the parent's")
    .option('--memory-gbs <number>', "gigabytes, or shared; default: the parent's")
    .option('--storage-gb <number>', "gigabytes of disk; default: the parent's")
    .option('--environment <environment>', 'DEV or PROD; default: DEV')
    .action(async (name: string, options: ForkOptions) => {
      if (options.at !== undefined && options.lastSnapshot === true)
        throw new Failure('--at and --last-snapshot: give one of them', 'usage');
      const connection = await connect(options);
      const strategy =
        options.at !== undefined ? 'PITR' : options.lastSnapshot === true ? 'LAST_SNAPSHOT' : 'NOW';
      const body: Schemas['ForkService'] = {
        fork_strategy: strategy,
        ...sizeOf(options),
        ...given('target_time', options.at),
        ...given('name', options.name),
        ...given('environment_tag', environmentOf(options.environment)),
      };
      const of = await findPath(connection, name);
      const made = await connection.client.POST(
        '/projects/{project_id}/services/{service_id}/forkService',
        { ...of, body },
      );
      await showCreated(connection, made, options);
    });

  verb(service, 'restore <deleted-service>', {
    does: 'Bring a deleted service back, with its id, endpoint, data and password.',
    example: 'howdah service restore orders',
    takes: CHANGES,
  }).action(async (name: string, options: Waiting) => {
    const connection = await connect(options);
    const { service_id: id } = await findDeleted(connection, name);
    await change(connection, id, options, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/restore', { params }),
    );
  });
}

function addChanges(service: Command): void {
  /** A change that takes nothing but the service. */
  const plain = (name: string, does: string, call: Call): void => {
    verb(service, `${name} <service>`, {
      does,
      example: `howdah service ${name} orders`,
      takes: CHANGES,
    }).action(async (wanted: string, options: Waiting) => changeFound(wanted, options, call));
  };
  plain('start', 'Start a paused service.', (client, params) =>
    client.POST('/projects/{project_id}/services/{service_id}/start', { params }),
  );
  plain('stop', 'Pause a service; its data, endpoint and settings stay.', (client, params) =>
    client.POST('/projects/{project_id}/services/{service_id}/stop', { params }),
  );
  plain(
    'switchover',
    'Make a replica the primary, in order: nothing is lost, sessions end, new ones wait for a moment.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/switchover', { params }),
  );
  plain(
    'enable-pooler',
    'Put a connection pooler (PgBouncer) in front of a service, on a port of its own.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/enablePooler', { params }),
  );
  plain(
    'disable-pooler',
    'Take the connection pooler away; its port stays reserved.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/disablePooler', { params }),
  );
  plain(
    'detach-vpc',
    'Take a service out of its VPC: its public endpoint is open to all again.',
    (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/detachFromVPC', {
        params,
        body: {},
      }),
  );

  verb(service, 'attach-vpc <service> <vpc>', {
    does: 'Put a service into a VPC: from then on only clients there get in.',
    example: 'howdah service attach-vpc orders office',
    takes: CHANGES,
  }).action(async (wanted: string, vpc: string, options: Waiting) => {
    const connection = await connect(options);
    const { service_id: id } = await findService(connection, wanted);
    const body = { vpc_id: (await findVpc(connection, vpc)).id };
    await change(connection, id, options, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/attachToVPC', { params, body }),
    );
  });

  verb(service, 'resize <service>', {
    does: 'Change the size of a service.',
    example: 'howdah service resize orders --cpu-millis 2000',
    takes: CHANGES,
  })
    .option('--cpu-millis <number>', 'thousandths of a core')
    .option('--memory-gbs <number>', 'gigabytes')
    .option('--storage-gb <number>', 'gigabytes of disk; alone it needs no restart')
    .action(async (wanted: string, options: Waiting & Size) =>
      changeFound(wanted, options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/resize', {
          params,
          body: sizeOf(options),
        }),
      ),
    );

  verb(service, 'ha <service>', {
    does: 'Set how many replicas stand by, and how many of them have every write before it is acknowledged.',
    example: 'howdah service ha orders --replicas 1 --sync 1',
    takes: CHANGES,
  })
    .option('--replicas <number>', '0 to 2')
    .option('--sync <number>', '0 to the number of replicas')
    .action(async (wanted: string, options: Waiting & { replicas?: string; sync?: string }) => {
      const { replicas, sync } = options;
      const body = {
        ...given(
          'replica_count',
          replicas === undefined ? undefined : countOf('--replicas', replicas),
        ),
        ...given('sync_replica_count', sync === undefined ? undefined : countOf('--sync', sync)),
      };
      await changeFound(wanted, options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/setHA', { params, body }),
      );
    });

  verb(service, 'drill <service>', {
    does: 'Rehearse a switchover, or a failover by killing the primary, and say for how long writes were not possible.',
    example: 'howdah service drill orders --kind failover',
    takes: CHANGES,
  })
    .addOption(
      new Option('--kind <kind>', 'what is rehearsed').choices(DRILLS).default('switchover'),
    )
    .option(
      '--confirm <name>',
      'the name of the service, without which the primary of a PROD service is not killed',
    )
    .action(async (wanted: string, options: Waiting & { kind: Drill; confirm?: string }) => {
      const body = { kind: options.kind, ...given('confirm', options.confirm) };
      await changeFound(wanted, options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/drill', { params, body }),
      );
    });

  verb(service, 'rename <service> <new-name>', {
    does: 'Rename a service.',
    example: 'howdah service rename orders shop',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, name: string, options: Changing) =>
    changeFound(wanted, { ...options, wait: false }, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/rename', {
        params,
        body: { name },
      }),
    ),
  );

  verb(service, 'set-environment <service> <environment>', {
    does: 'Say whether a service is for development or production, which asks for more before it is deleted.',
    example: 'howdah service set-environment orders PROD',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, tag: string, options: Changing) => {
    const body = { environment: oneOf('environment', ENVIRONMENTS, tag) };
    await changeFound(wanted, { ...options, wait: false }, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/setEnvironment', { params, body }),
    );
  });

  verb(service, 'set-password <service>', {
    does: 'Change the password of tsdbadmin. It is asked for, or the first line of what is piped in.',
    example: 'openssl rand -hex 16 | howdah service set-password orders',
    takes: ['dryRun'],
  }).action(async (wanted: string, options: { dryRun?: true }) => {
    const connection = await connect(options);
    const { service_id: id, name } = await findService(connection, wanted);
    const password = await readSecret(`new password of ${name}: `);
    const params = pathOf(connection, id);
    await connection.client.POST('/projects/{project_id}/services/{service_id}/updatePassword', {
      params,
      body: { password },
    });
    note(`${name} has the new password; sessions that are open stay`);
  });
}

function addEnds(service: Command): void {
  verb(service, 'delete <service>', {
    does: 'Delete a service with all its data. Asks first, on a terminal.',
    example: 'howdah service delete orders --yes',
    takes: ['dryRun', 'wait', 'yes'],
  }).action(async (wanted: string, options: Omit<Waiting, 'output'> & Destroying) => {
    const connection = await connect(options);
    const { service_id: id, name, metadata } = await findService(connection, wanted);
    await confirm(
      `Delete the ${metadata.environment} service ${name} (${id}) with all its data?`,
      options,
    );
    const { response } = await connection.client.DELETE(
      '/projects/{project_id}/services/{service_id}',
      { params: pathOf(connection, id) },
    );
    await follow(connection, response, options);
    note(
      `${name} is ${options.wait ? 'deleted' : 'being deleted'}; howdah service restore ${id} brings it back, for some time`,
    );
  });

  verb(service, 'purge <service>', {
    does: 'Remove a service, or a deleted one, for good: its disk space is free at once. Takes an admin key; asks for the name, on a terminal.',
    example: 'howdah service purge orders --confirm orders',
    takes: ['dryRun', 'wait', 'yes'],
  })
    .option(
      '--confirm <name>',
      'the name of the service: nothing is asked; without the name a PROD service is not purged',
    )
    .action(
      async (
        wanted: string,
        options: Omit<Waiting, 'output'> & Destroying & { confirm?: string },
      ) => {
        const connection = await connect(options);
        const { service_id: id, name, environment } = await findAlsoDeleted(connection, wanted);
        const confirmed = await confirmName(
          `the ${environment} service ${name} (${id}) with all its data`,
          name,
          options,
        );
        const query = { purge: 'true' as const, ...given('confirm', confirmed) };
        const params = { ...pathOf(connection, id), query };
        const { response } = await connection.client.DELETE(
          '/projects/{project_id}/services/{service_id}',
          { params },
        );
        await follow(connection, response, options);
        note(`${name} is ${options.wait ? 'removed' : 'being removed'}`);
      },
    );
}

/** A service, or one that is deleted and can be restored. */
async function findAlsoDeleted(
  connection: Connection,
  wanted: string,
): Promise<Pick<Schemas['DeletedService'], 'service_id' | 'name' | 'environment'>> {
  try {
    const { service_id, name, metadata } = await findService(connection, wanted);
    return { service_id, name, environment: metadata.environment };
  } catch (error) {
    if (exitOf(error) !== 'notFound') throw error;
    return findDeleted(connection, wanted);
  }
}

async function changeFound(wanted: string, options: Waiting, call: Call): Promise<void> {
  const connection = await connect(options);
  await change(connection, (await findService(connection, wanted)).service_id, options, call);
}

/** Changes a service, waits for it, and shows the service as it is then. */
async function change(
  connection: Connection,
  id: string,
  options: Waiting,
  call: Call,
): Promise<void> {
  const { data, response } = await call(connection.client, pathOf(connection, id));
  await follow(connection, response, options);
  await showChanged(options.output, data, serviceView(await findCa(connection.apiUrl)), () =>
    readService(connection, id),
  );
}

/** Waits for a new service and says how to connect: the password is in the answer to create and fork, and nowhere else. */
async function showCreated(
  connection: Connection,
  made: { data?: Service; response: Response },
  options: Waiting,
): Promise<void> {
  const { data, response } = made;
  if (data === undefined) throw new Failure('the server answered without a body');
  const ca = await findCa(connection.apiUrl);
  const view = serviceView(ca);
  const address = { ...endpointOf(data), ca, ...given('password', data.initial_password) };
  const asTable = (): void => {
    say(
      `${data.service_type} ${data.service_id} at ${placeOf(endpointOf(data))}. Its password is shown once, here:`,
    );
    say(`  psql "${urlOf(address)}"`);
    sayPooler(data);
    if (data.vpc_endpoint !== undefined)
      say(`inside the VPC ${data.vpc_endpoint.vpc_id}, and from nowhere else`);
  };
  try {
    await follow(connection, response, options);
  } finally {
    // Whatever becomes of the wait: the service may get there yet, and its password is told once.
    await showAs(options.output, data, view.noun, asTable, view.variables?.(data));
  }
}

/** Where the pooler of a service is, if it has one: what stands after the password in a connection string. */
function sayPooler(service: Service): void {
  const pooler = poolerOf(service);
  if (pooler === undefined) return;
  const place = placeOf(pooler);
  say(`through the pooler, by session:     ${place}/tsdb?sslmode=require`);
  say(`through the pooler, by transaction: ${place}/tsdb_transaction?sslmode=require`);
}

const DRILLS = ['switchover', 'failover'] as const;
type Drill = (typeof DRILLS)[number];

function sizeOf({ cpuMillis, memoryGbs, storageGb }: Size) {
  return {
    ...given('cpu_millis', cpuMillis),
    ...given('memory_gbs', memoryGbs),
    ...given(
      'storage_gb',
      storageGb === undefined ? undefined : countOf('--storage-gb', storageGb),
    ),
  };
}

function environmentOf(tag: string | undefined) {
  return tag === undefined ? undefined : oneOf('--environment', ENVIRONMENTS, tag);
}

function addonsOf(list: string) {
  return list === 'none' || list === ''
    ? []
    : listOf('--addons', [...ADDONS, 'none'], list).filter((addon) => addon !== 'none');
}
