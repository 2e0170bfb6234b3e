import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { HowdahError, type Schemas } from '@howdah/client';
import {
  ADDONS,
  DATABASE_NAME,
  SERVICE_TYPES,
  TRANSACTION_POOL_NAME,
  type ServiceType,
} from '@howdah/contract/types';
import { simulationNote } from '@howdah/contract/simulated';
import { Option, type Command } from 'commander';
import { placeOf } from '@howdah/contract/connect';
import { clientHints, endpointOf, poolerOf, urlOf, whoConnects } from '../address.ts';
import { countOf, given, listOf, verb, type Repeatable, type Waiting } from '../command.ts';
import { connect, findCa, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import {
  DELETED_SERVICES,
  find,
  findPath,
  findService,
  findVpc,
  listServices,
  ofProject,
  readService,
} from '../find.ts';
import { follow, followService } from '../follow.ts';
import { momentIfGiven, MOMENTS } from '../moment.ts';
import { note, say, showAs } from '../output.ts';
import { serviceView } from '../views.ts';
import { AUTO_SUSPEND, autoSuspendOf } from './service-sleep.ts';
import { lifetimeOf, takeLifetime, type Lifetime } from './service-lifetime.ts';
import {
  change,
  CHANGES,
  CREATES,
  environmentOf,
  showService,
  sizeOf,
  type Size,
} from './service-shared.ts';

type Service = Schemas['Service'];
type CreateOptions = Repeatable &
  Lifetime &
  Size & {
    name: string;
    addons?: string;
    type?: ServiceType;
    pgVersion?: string;
    region?: string;
    replicas?: string;
    sync?: string;
    environment?: string;
    pooler?: true;
    vpc?: string;
    autoSuspend?: string;
  };
type ForkOptions = Repeatable &
  Lifetime &
  Size & {
    name?: string;
    lastSnapshot?: true;
    at?: string;
    environment?: string;
    pgVersion?: string;
    autoSuspend?: string;
  };

/** `howdah service create`, `fork` and `restore` */
export function addCreates(service: Command): void {
  addCreate(service);
  addFork(service);
  addRestore(service);
}

function addCreate(service: Command): void {
  takeLifetime(
    verb(service, 'create', {
      does: 'Create a service, wait until it is ready and print how to connect.',
      example: 'howdah service create --name orders --addons time-series,ai --cpu-millis 1000',
      takes: CREATES,
    })
      .requiredOption('--name <name>', '1 to 128 characters')
      .option(
        '--addons <list>',
        'time-series, ai or both, separated by a comma; none for plain PostgreSQL',
      )
      .addOption(
        new Option('--type <type>', 'the type of service, instead of --addons').choices(
          SERVICE_TYPES,
        ),
      )
      .option('--pg-version <major>', 'major version of PostgreSQL; howdah region list shows them')
      .option('--cpu-millis <number>', 'thousandths of a core, or shared')
      .option('--memory-gbs <number>', 'gigabytes, or shared')
      .option('--storage-gb <number>', 'gigabytes of disk; default: depends on the size')
      .option('--cpu-bound', 'no more CPU than its size; default: as its region has it')
      .option('--no-cpu-bound', 'idle processors beyond its size')
      .option('--replicas <number>', 'number of standbys, 0 to 2')
      .option('--sync <number>', 'number of synchronous standbys')
      .option('--environment <environment>', 'DEV or PROD; default: DEV')
      .option('--auto-suspend <time>', AUTO_SUSPEND)
      .option('--pooler', 'with a connection pooler')
      .option('--vpc <vpc>', 'the VPC to create it in, by its id or name')
      .option('--region <region>', 'the region; howdah region list shows the regions'),
  ).action(async (options: CreateOptions) => {
    const connection = await connect(options);
    const body = {
      name: options.name,
      unique_name: true,
      ...sizeOf(options),
      ...given('addons', options.addons === undefined ? undefined : addonsOf(options.addons)),
      ...given('service_type', options.type),
      ...given('pg_version', options.pgVersion),
      ...given('region_code', options.region),
      ...given('environment_tag', environmentOf(options.environment)),
      ...given('enable_pooler', options.pooler),
      ...lifetimeOf(options),
      ...autoSuspendOf(options.autoSuspend),
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
    const make = () =>
      connection.client.POST('/projects/{project_id}/services', {
        params: ofProject(connection),
        body,
      });
    await makeOnce(connection, options.name, options, make);
  });
}

function addFork(service: Command): void {
  takeLifetime(
    verb(service, 'fork <service>', {
      does: 'Fork a service: of now, of its last snapshot, or of a point in time.',
      example: 'howdah service fork orders --at -5m --name before-the-migration',
      takes: CREATES,
    })
      .option(
        '--name <name>',
        'default: the name of the parent and "-fork", with a number if in use',
      )
      .option('--last-snapshot', 'from the last snapshot')
      .option(
        '--at <time>',
        `as it was at this time: ${MOMENTS}; howdah backup status shows the earliest`,
      )
      .option('--cpu-millis <number>', "thousandths of a core, or shared; default: the parent's")
      .option('--memory-gbs <number>', "gigabytes, or shared; default: the parent's")
      .option('--storage-gb <number>', "gigabytes of disk; default: the parent's")
      .option('--cpu-bound', 'no more CPU than its size; default: as its parent')
      .option('--no-cpu-bound', 'idle processors beyond its size')
      .option('--auto-suspend <time>', `${AUTO_SUSPEND}; default: as the key or its parent says`)
      .option('--environment <environment>', 'DEV or PROD; default: DEV')
      .option(
        '--pg-version <major>',
        "a newer major version of PostgreSQL, not with --at; default: the parent's",
      ),
  ).action(async (name: string, options: ForkOptions) => {
    if (options.at !== undefined && options.lastSnapshot === true)
      throw new Failure('--at and --last-snapshot: give only one of them', 'usage');
    const connection = await connect(options);
    const strategy =
      options.at !== undefined ? 'PITR' : options.lastSnapshot === true ? 'LAST_SNAPSHOT' : 'NOW';
    const body: Schemas['ForkService'] = {
      fork_strategy: strategy,
      ...sizeOf(options),
      ...given('target_time', momentIfGiven('--at', options.at)),
      ...given('name', options.name),
      unique_name: options.name !== undefined,
      ...given('environment_tag', environmentOf(options.environment)),
      ...given('pg_version', options.pgVersion),
      ...lifetimeOf(options),
      ...autoSuspendOf(options.autoSuspend),
    };
    const of = await findPath(connection, name);
    const make = () =>
      connection.client.POST('/projects/{project_id}/services/{service_id}/forkService', {
        ...of,
        body,
      });
    await makeOnce(connection, options.name, options, make);
  });
}

function addRestore(service: Command): void {
  verb(service, 'restore <deleted-service>', {
    does:
      'Restore a deleted service with its id, endpoint, data and password; from a repository ' +
      'when its data was removed from the machine.',
    example: 'howdah service restore orders',
    takes: CHANGES,
  }).action(async (name: string, options: Waiting) => {
    const connection = await connect(options);
    const { service_id: id } = await find(connection, DELETED_SERVICES, name);
    await change(connection, id, options, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/restore', { params }),
    );
  });
}

/**
 * Makes a service and shows it. With `--if-absent`, a service that has the name already is shown in
 * place of a new one, once no operation of it is running.
 */
async function makeOnce(
  connection: Connection,
  name: string | undefined,
  options: Repeatable,
  make: () => Promise<{ data?: Service; response: Response }>,
): Promise<void> {
  if (options.ifAbsent === true && name === undefined)
    throw new Failure('--if-absent: give the name as well, with --name', 'usage');
  let made;
  try {
    made = await make();
  } catch (error) {
    const isUsed = error instanceof HowdahError && error.code === 'CONFLICT';
    const found = isUsed ? (await listServices(connection)).filter((one) => one.name === name) : [];
    if (options.ifAbsent !== true || found.length === 0) throw error;
    const { service_id: id } = await findService(connection, String(name));
    note(`${id} is called ${name} already; its password was shown when it was made`);
    if (options.wait) await followService(connection, id, options.timeout);
    await showService(connection, options.output, await readService(connection, id));
    return;
  }
  await showCreated(connection, made, options);
}

/**
 * Waits for a new service and prints how to connect. Only the answer to create and fork has the
 * password.
 */
export async function showCreated(
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
      `${data.service_type} ${data.service_id} at ${placeOf(endpointOf(data))}. ` +
        'Its password is shown only once:',
    );
    const who = whoConnects(data);
    if (who !== null) say(who);
    say(`  psql "${urlOf(address)}"`);
    const simulated = simulationNote(data);
    for (const line of simulated === null ? clientHints(address) : [simulated]) say(line);
    sayPooler(data);
  };
  try {
    await follow(connection, response, options);
  } finally {
    // Also after a failed wait: the service may still become READY, and its password is shown only
    // once.
    await showAs(options.output, data, view.noun, asTable, view.variables?.(data));
  }
}

/** Prints the addresses of the pooler, as they follow the password in a connection string. */
function sayPooler(service: Service): void {
  const pooler = poolerOf(service);
  if (pooler === undefined) return;
  const place = placeOf(pooler);
  say(`through the pooler, by session:     ${place}/${DATABASE_NAME}?sslmode=require`);
  say(`through the pooler, by transaction: ${place}/${TRANSACTION_POOL_NAME}?sslmode=require`);
}

function addonsOf(list: string) {
  return list === 'none' || list === ''
    ? []
    : listOf('--addons', [...ADDONS, 'none'], list).filter((addon) => addon !== 'none');
}

// `howdah service create-from-kit`

type Options = Repeatable &
  Size & { name?: string; at?: string; environment?: string; region?: string };

export function addCreateFromKit(service: Command): void {
  verb(service, 'create-from-kit <file> [service]', {
    does:
      'Create a service with the data of one of another installation, from the repository of its ' +
      'recovery kit, which is only read. With --dry-run and no service it lists those that there ' +
      'are. Needs an admin key of the operator project.',
    example: 'howdah service create-from-kit production-kit.json orders --name orders-staging',
    takes: CREATES,
  })
    .option('--name <name>', 'default: the name of the service there')
    .option('--at <time>', `as it was at this time: ${MOMENTS}; default: the newest state`)
    .option('--cpu-millis <number>', 'thousandths of a core, or shared')
    .option('--memory-gbs <number>', 'gigabytes, or shared')
    .option('--storage-gb <number>', 'gigabytes of disk; default: as there')
    .option('--environment <environment>', 'DEV or PROD; default: DEV')
    .option('--region <region>', 'the region; howdah region list shows the regions')
    .action(async (file: string, wanted: string | undefined, options: Options) => {
      const kit = await readKit(file);
      const connection = await connect(options);
      const make = () =>
        connection.client.POST('/projects/{project_id}/services/fromKit', {
          params: ofProject(connection),
          body: {
            kit,
            ...sizeOf(options),
            ...given('service', wanted),
            ...given('name', options.name),
            unique_name: options.name !== undefined,
            ...given('target_time', momentIfGiven('--at', options.at)),
            ...given('region_code', options.region),
            ...given('environment_tag', environmentOf(options.environment)),
          },
        });
      await makeOnce(connection, options.name, options, make);
    });
}

/** The API checks what the kit has. @throws Failure for a file that is none */
async function readKit(file: string): Promise<Schemas['RecoveryKit']> {
  const text = file === '-' ? await readAll(process.stdin) : await readFile(file, 'utf8');
  try {
    const kit: Schemas['RecoveryKit'] = JSON.parse(text);
    if (typeof kit === 'object' && kit !== null) return kit;
  } catch {
    // The file is no JSON either.
  }
  throw new Failure(`${file} is no recovery kit: howdah repo kit prints one`, 'usage');
}
