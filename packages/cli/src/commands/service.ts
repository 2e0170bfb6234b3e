import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { setTimeout as sleep } from 'node:timers/promises';
import pc from 'picocolors';
import { answered, connect, type Connection } from '../connection.ts';
import { duration, Failure, say, table } from '../output.ts';
import { addHistory } from './history.ts';

type Service = Schemas['Service'];

export function addService(program: Command): void {
  const service = program.command('service').description('Make and manage services.');

  service
    .command('list')
    .description('List the services.')
    .option('--json', 'as the API answers them')
    .action(async ({ json }: { json?: true }) => {
      const connection = await connect();
      const services = await listServices(connection);
      if (json === true) say(JSON.stringify(services, null, 2));
      else table(['ID', 'NAME', 'TYPE', 'STATUS', 'CPU', 'MEMORY', 'ENDPOINT'], services.map(rowOf));
    });

  service
    .command('get')
    .description('Show a service.')
    .argument('<service>', 'id or name')
    .action(async (name: string) => say(JSON.stringify(await findService(await connect(), name), null, 2)));

  service
    .command('create')
    .description('Create a service, wait until it is ready and print how to connect.')
    .requiredOption('--name <name>', '1 to 128 characters')
    .option('--addons <list>', 'time-series, ai or both, separated by a comma; none for plain PostgreSQL')
    .option('--cpu-millis <number>', 'thousandths of a core, or shared')
    .option('--memory-gbs <number>', 'gigabytes, or shared')
    .option('--environment <tag>', 'DEV or PROD', 'DEV')
    .option('--no-wait', 'do not wait until it is ready')
    .option('--json', 'print the answer of the API')
    .action(async (options: CreateOptions) => create(options));

  const change = (verb: 'start' | 'stop', description: string) =>
    service
      .command(verb)
      .description(description)
      .argument('<service>', 'id or name')
      .option('--no-wait', 'do not wait until it is done')
      .action(async (name: string, { wait }: { wait: boolean }) => {
        const connection = await connect();
        const { service_id } = await findService(connection, name);
        const { response } = await call(
          connection,
          connection.client.POST(`/projects/{project_id}/services/{service_id}/${verb}`, { params: pathOf(connection, service_id) }),
        );
        await follow(connection, response, wait);
      });
  change('start', 'Start a paused service.');
  change('stop', 'Pause a service; its data, endpoint and settings stay.');

  service
    .command('resize')
    .description('Change the size of a service.')
    .argument('<service>', 'id or name')
    .option('--cpu-millis <number>', 'thousandths of a core')
    .option('--memory-gbs <number>', 'gigabytes')
    .option('--no-wait', 'do not wait until it is done')
    .action(async (name: string, { cpuMillis, memoryGbs, wait }: { cpuMillis?: string; memoryGbs?: string; wait: boolean }) => {
      const connection = await connect();
      const { service_id } = await findService(connection, name);
      const body = {
        ...(cpuMillis === undefined ? {} : { cpu_millis: cpuMillis }),
        ...(memoryGbs === undefined ? {} : { memory_gbs: memoryGbs }),
      };
      const { response } = await call(
        connection,
        connection.client.POST('/projects/{project_id}/services/{service_id}/resize', { params: pathOf(connection, service_id), body }),
      );
      await follow(connection, response, wait);
    });

  service
    .command('rename')
    .description('Rename a service.')
    .argument('<service>', 'id or name')
    .argument('<name>', 'the new name')
    .action(async (name: string, next: string) => {
      const connection = await connect();
      const { service_id } = await findService(connection, name);
      await call(
        connection,
        connection.client.POST('/projects/{project_id}/services/{service_id}/rename', {
          params: pathOf(connection, service_id),
          body: { name: next },
        }),
      );
      say(`${service_id} is now called ${next}`);
    });

  service
    .command('fork')
    .description('Fork a service: as it is now, as of its last snapshot, or as it was at a point in time.')
    .argument('<service>', 'id or name')
    .option('--name <name>', 'default: the name of the parent and "-fork"')
    .option('--last-snapshot', 'from the last snapshot')
    .option('--at <date-time>', 'as it was then, like 2026-01-31T12:00:00Z; howdah service backups shows how far back')
    .option('--no-wait', 'do not wait until it is ready')
    .action(async (name: string, options: ForkOptions) => fork(name, options));

  service
    .command('backups')
    .description('Show the snapshots of a service and the window that can be reached.')
    .argument('<service>', 'id or name')
    .action(async (name: string) => {
      const connection = await connect();
      const { service_id } = await findService(connection, name);
      const backups = await answered(
        connection,
        connection.client.GET('/projects/{project_id}/services/{service_id}/backups', { params: pathOf(connection, service_id) }),
      );
      say(
        `any moment from ${backups.window.earliest ?? 'none yet'} to ${backups.window.latest ?? 'none yet'}; kept for ${backups.window.days} days`,
      );
      table(
        ['SNAPSHOT', 'TAKEN', 'KIND', 'SIZE'],
        backups.snapshots.map(({ id, taken, kind, storage_mb }) => [id, taken, kind, `${storage_mb} MB`]),
      );
      if (backups.problem !== null) throw new Failure(backups.problem);
    });

  service
    .command('restore')
    .description('Bring a deleted service back, with its id, endpoint, data and password.')
    .argument('<service>', 'its id')
    .option('--no-wait', 'do not wait until it is back')
    .action(async (id: string, { wait }: { wait: boolean }) => {
      const connection = await connect();
      const { response } = await call(
        connection,
        connection.client.POST('/projects/{project_id}/services/{service_id}/restore', { params: pathOf(connection, id) }),
      );
      await follow(connection, response, wait);
    });

  service
    .command('delete')
    .description('Delete a service with all its data.')
    .argument('<service>', 'id or name')
    .option('--no-wait', 'do not wait until it is gone')
    .action(async (name: string, { wait }: { wait: boolean }) => {
      const connection = await connect();
      const { service_id } = await findService(connection, name);
      const { response } = await call(
        connection,
        connection.client.DELETE('/projects/{project_id}/services/{service_id}', { params: pathOf(connection, service_id) }),
      );
      await follow(connection, response, wait);
    });

  addHistory(service);
}

type ForkOptions = { name?: string; lastSnapshot?: true; at?: string; wait: boolean };

async function fork(name: string, options: ForkOptions): Promise<void> {
  const connection = await connect();
  const { service_id } = await findService(connection, name);
  if (options.at !== undefined && options.lastSnapshot === true) throw new Failure('--at and --last-snapshot: give one of them', 2);
  const body = {
    fork_strategy:
      options.at !== undefined ? ('PITR' as const) : options.lastSnapshot === true ? ('LAST_SNAPSHOT' as const) : ('NOW' as const),
    ...(options.at === undefined ? {} : { target_time: options.at }),
    ...(options.name === undefined ? {} : { name: options.name }),
  };
  const { data, response } = await call(
    connection,
    connection.client.POST('/projects/{project_id}/services/{service_id}/forkService', { params: pathOf(connection, service_id), body }),
  );
  if (data === undefined) throw new Failure('the server answered without a body');
  await follow(connection, response, options.wait);
  sayHowToConnect(data);
}

type CreateOptions = {
  name: string;
  addons?: string;
  cpuMillis?: string;
  memoryGbs?: string;
  environment: string;
  wait: boolean;
  json?: true;
};

async function create(options: CreateOptions): Promise<void> {
  const connection = await connect();
  const environment = ENVIRONMENTS.find((tag) => tag === options.environment);
  if (environment === undefined) throw new Failure(`--environment: found ${options.environment}; allowed: ${ENVIRONMENTS.join(', ')}`, 2);
  const body = {
    name: options.name,
    environment_tag: environment,
    ...(options.addons === undefined ? {} : { addons: parseAddons(options.addons) }),
    ...(options.cpuMillis === undefined ? {} : { cpu_millis: options.cpuMillis }),
    ...(options.memoryGbs === undefined ? {} : { memory_gbs: options.memoryGbs }),
  };
  const { data, response } = await call(
    connection,
    connection.client.POST('/projects/{project_id}/services', { params: { path: { project_id: connection.projectId } }, body }),
  );
  if (data === undefined) throw new Failure('the server answered without a body');
  if (options.json === true) {
    if (options.wait) await follow(connection, response, true, true);
    say(JSON.stringify(data, null, 2));
    return;
  }
  await follow(connection, response, options.wait);
  sayHowToConnect(data);
}

/** The password is in the answer to create and fork, and nowhere else. */
function sayHowToConnect(data: Service): void {
  const { host, port } = data.endpoint;
  say(`${data.service_type} ${pc.bold(data.service_id)} at ${host}:${port}. Its password is shown once, here:`);
  say(`  psql "postgres://tsdbadmin:${data.initial_password ?? ''}@${host}:${port}/tsdb?sslmode=require"`);
}

const ENVIRONMENTS = ['DEV', 'PROD'] as const;
const ADDONS = ['time-series', 'ai'] as const;

function parseAddons(list: string): (typeof ADDONS)[number][] {
  return list.split(',').flatMap((word) => {
    const name = word.trim();
    if (name === '' || name === 'none') return [];
    const addon = ADDONS.find((candidate) => candidate === name);
    if (addon === undefined) throw new Failure(`--addons: found ${name}; allowed: ${ADDONS.join(', ')}, none`, 2);
    return [addon];
  });
}

/** The service with this id, or the only one with this name. */
export async function findService(connection: Connection, name: string): Promise<Service> {
  const services = await listServices(connection);
  const found = services.filter((service) => service.service_id === name);
  const named = found.length > 0 ? found : services.filter((service) => service.name === name);
  const [first, second] = named;
  if (first === undefined) throw new Failure(`no service with the id or name ${name}; howdah service list shows them`, 3);
  if (second !== undefined)
    throw new Failure(
      `${named.length} services are called ${name}: name one by its id (${named.map((service) => service.service_id).join(', ')})`,
      2,
    );
  return first;
}

async function listServices(connection: Connection): Promise<Service[]> {
  return answered(
    connection,
    connection.client.GET('/projects/{project_id}/services', { params: { path: { project_id: connection.projectId } } }),
  );
}

/** Waits for the operation that an answer names, and prints its steps as they end. */
async function follow(connection: Connection, response: Response, wait: boolean, quiet = false): Promise<void> {
  const operationId = response.headers.get('Operation-Id');
  if (!wait || operationId === null) return;
  let shown = 0;
  for (;;) {
    const operation = await answered(
      connection,
      connection.client.GET('/projects/{project_id}/operations/{operation_id}', {
        params: { path: { project_id: connection.projectId, operation_id: operationId } },
      }),
    );
    const finished = operation.steps.filter((step) => step.finished !== null);
    for (const step of finished.slice(shown)) {
      const ms = Date.parse(step.finished ?? step.started) - Date.parse(step.started);
      // Of an operation that does not get on, the last step that ended is the one that did not work.
      const mark = operation.error !== undefined && step === finished.at(-1) ? pc.red('✗') : pc.green('✓');
      if (!quiet) say(`${mark} ${step.name} ${pc.dim(`${duration(ms)}${step.detail === null ? '' : `, ${step.detail}`}`)}`);
    }
    shown = Math.max(shown, finished.length);
    if (operation.status === 'succeeded') return;
    if (operation.status === 'failed') throw new Failure(`${operation.kind} failed: ${operation.error ?? 'no reason was given'}`);
    if (operation.error !== undefined) throw new Failure(`${operation.kind} does not get on, and is being tried again: ${operation.error}`);
    await sleep(POLL_MS);
  }
}

const POLL_MS = 100;

async function call<T>(connection: Connection, request: Promise<T>): Promise<T> {
  return answered(
    connection,
    request.then((data) => ({ data })),
  );
}

function pathOf(connection: Connection, serviceId: string) {
  return { path: { project_id: connection.projectId, service_id: serviceId } };
}

function rowOf(service: Service): string[] {
  const { cpu_millis: cpu, memory_gbs: memory } = service.resources[0]?.spec ?? {};
  return [
    service.service_id,
    service.name,
    service.service_type,
    service.status,
    cpu === undefined ? 'shared' : `${cpu / 1000}`,
    memory === undefined ? 'shared' : `${memory} GB`,
    `${service.endpoint.host}:${service.endpoint.port}`,
  ];
}
