import type { HowdahClient, Schemas } from '@howdah/client';
import type { Action } from '@howdah/contract/actions';
import { permissionOfAction } from '@howdah/contract/permissions';
import { ENVIRONMENTS, SET_PURPOSES } from '@howdah/contract/types';
import type { Command } from 'commander';
import { placeOf } from '@howdah/contract/connect';
import { endpointOf } from '../address.ts';
import {
  countOf,
  given,
  noun,
  oneOf,
  verb,
  type Changing,
  type Confirming,
  type Destroying,
  type Printing,
  type Waiting,
} from '../command.ts';
import { confirm, confirmAction } from '../confirm.ts';
import { answered, connect, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findPath, findService, findSet } from '../find.ts';
import { follow } from '../follow.ts';
import { noNames, vpcNames } from '../names.ts';
import { isForPrograms, note, say, show, showAs, showList, type Format } from '../output.ts';
import { refuseBeforeAsking } from '../permission.ts';
import { SET_VIEW, setDetailView } from '../views.ts';

type OfSet = Awaited<ReturnType<typeof findSet>>;
type CreateOptions = Waiting & {
  name: string;
  nodes: string;
  cpuMillis: string;
  memoryGbs: string;
  purpose: string;
  force?: true;
};
type ResizeOptions = Waiting &
  Confirming & { cpuMillis?: string; memoryGbs?: string; force?: true };

const SET_PATH = '/projects/{project_id}/services/{service_id}/replicaSets/{replica_set_id}';

export function addReplicaSet(program: Command): void {
  const set = noun(
    program,
    'replica-set',
    'Create and manage read replica sets: nodes that follow a service, behind one endpoint.',
  );

  verb(set, 'list <service>', {
    does: 'List the read replica sets of a service.',
    example: 'howdah replica-set list orders',
    takes: ['output'],
  }).action(async (service: string, { output }: Printing) => {
    const connection = await connect();
    const sets = connection.client.GET(
      '/projects/{project_id}/services/{service_id}/replicaSets',
      await findPath(connection, service),
    );
    await showList(output, await answered(sets), SET_VIEW);
  });

  verb(set, 'get <service> <set>', {
    does: 'Show a read replica set, with how far each of its nodes is behind.',
    example: 'howdah replica-set get orders readers',
    takes: ['output'],
  }).action(async (service: string, name: string, { output }: Printing) => {
    const connection = await connect();
    const of = await findSet(connection, service, name);
    await showSet(connection, output, await readSet(connection, of));
  });

  verb(set, 'create <service>', {
    does: 'Create a read replica set, wait until its nodes serve and print how to connect.',
    example: 'howdah replica-set create orders --name readers --nodes 2',
    takes: ['output', 'dryRun', 'wait', 'force'],
  })
    .requiredOption('--name <name>', '1 to 128 characters')
    .option('--nodes <number>', '1 to 10', '1')
    .option('--cpu-millis <number>', 'thousandths of a core, of each node', '500')
    .option('--memory-gbs <number>', 'gigabytes, of each node', '2')
    .option('--purpose <purpose>', 'reports, or lookups: short queries', 'reports')
    .action(async (service: string, options: CreateOptions) => create(service, options));

  verb(set, 'resize <service> <set>', {
    does: 'Change the size of the nodes, one after the other.',
    example: 'howdah replica-set resize orders readers --cpu-millis 1000',
    takes: ['output', 'dryRun', 'wait', 'confirm', 'force'],
  })
    .option('--cpu-millis <number>', 'thousandths of a core')
    .option('--memory-gbs <number>', 'gigabytes')
    .action(async (service: string, name: string, options: ResizeOptions) => {
      const body = {
        ...given('cpu_millis', options.cpuMillis),
        ...given('memory_gbs', options.memoryGbs),
        ...given('force', options.force),
      };
      await change(service, name, 'changeReplicaSet', options, (client, of) =>
        client.POST(`${SET_PATH}/resize`, { ...of, body }),
      );
    });

  verb(set, 'enable-pooler <service> <set>', {
    does: 'Enable the connection pooler (PgBouncer) of a set, on a port of its own.',
    example: 'howdah replica-set enable-pooler orders readers',
    takes: ['output', 'dryRun'],
  }).action(async (service: string, name: string, options: Changing) =>
    change(service, name, null, { ...options, wait: false }, (client, of) =>
      client.POST(`${SET_PATH}/enablePooler`, of),
    ),
  );

  verb(set, 'disable-pooler <service> <set>', {
    does: 'Disable the connection pooler; its port stays reserved.',
    example: 'howdah replica-set disable-pooler orders readers',
    takes: ['output', 'dryRun', 'confirm'],
  }).action(async (service: string, name: string, options: Changing & Confirming) =>
    change(service, name, 'changeReplicaSet', { ...options, wait: false }, (client, of) =>
      client.POST(`${SET_PATH}/disablePooler`, of),
    ),
  );

  verb(set, 'set-environment <service> <set> <environment>', {
    does: 'Set the environment of a set: DEV or PROD.',
    example: 'howdah replica-set set-environment orders readers PROD',
    takes: ['output', 'dryRun', 'confirm'],
  }).action(async (service: string, name: string, tag: string, options: Changing & Confirming) => {
    const body = { environment: oneOf('environment', ENVIRONMENTS, tag) };
    await change(service, name, 'setEnvironment', { ...options, wait: false }, (client, of) =>
      client.POST(`${SET_PATH}/setEnvironment`, { ...of, body }),
    );
  });

  verb(set, 'set-purpose <service> <set> <purpose>', {
    does:
      'Set what reads a set is for. reports: queries of minutes end, and the primary keeps the ' +
      'rows that they see. lookups: a query in the way of a change is cancelled after 30 s.',
    example: 'howdah replica-set set-purpose orders readers lookups',
    takes: ['output', 'dryRun'],
  }).action(async (service: string, name: string, wanted: string, options: Changing) => {
    const body = { purpose: oneOf('purpose', SET_PURPOSES, wanted) };
    await change(service, name, null, { ...options, wait: false }, (client, of) =>
      client.POST(`${SET_PATH}/setPurpose`, { ...of, body }),
    );
  });

  verb(set, 'delete <service> <set>', {
    does: 'Delete a read replica set; its service stays. Asks for confirmation on a terminal.',
    example: 'howdah replica-set delete orders readers',
    takes: ['dryRun', 'wait', 'yes', 'confirm'],
  }).action(
    async (
      service: string,
      name: string,
      options: Omit<Waiting, 'output'> & Destroying & Confirming,
    ) => {
      const connection = await connect(options);
      const { found, of, set } = await findSetToChange(connection, service, name);
      await refuseBeforeAsking(connection, options, permissionOfAction('deleteReplicaSet'), {
        environment: set?.metadata.environment ?? 'DEV',
        createdBy: found.created_by,
      });
      const confirmed =
        set === undefined
          ? undefined
          : await confirmAction(
              'deleteReplicaSet',
              { ...set, environment: set.metadata.environment },
              options,
            );
      if (confirmed === undefined) await confirm(`Delete the read replica set ${name}?`, options);
      const { response } = await connection.client.DELETE(SET_PATH, confirmedBy(of, confirmed));
      await follow(connection, response, options);
      note(`${name} is ${options.wait ? 'deleted' : 'being deleted'}`);
    },
  );
}

async function create(service: string, options: CreateOptions): Promise<void> {
  const connection = await connect(options);
  const body = {
    name: options.name,
    nodes: countOf('--nodes', options.nodes),
    cpu_millis: options.cpuMillis,
    memory_gbs: options.memoryGbs,
    purpose: oneOf('--purpose', SET_PURPOSES, options.purpose),
    ...given('force', options.force),
  };
  const of = await findPath(connection, service);
  const { data, response } = await connection.client.POST(
    '/projects/{project_id}/services/{service_id}/replicaSets',
    { ...of, body },
  );
  if (data === undefined) throw new Failure('the server answered without a body');
  await follow(connection, response, options);
  await showAs(options.output, data, SET_VIEW.noun, () =>
    say(
      `${data.id}, read-only, with the users and passwords of its service: ` +
        `${placeOf(endpointOf(data))}/tsdb?sslmode=require`,
    ),
  );
}

async function change(
  service: string,
  name: string,
  action: Action | null,
  options: Waiting & Confirming,
  call: (client: HowdahClient, of: ConfirmedSet) => Promise<{ data?: unknown; response: Response }>,
): Promise<void> {
  const connection = await connect(options);
  const { of, set } = await findSetToChange(connection, service, name);
  const confirmed =
    action === null || set === undefined
      ? undefined
      : await confirmAction(action, { ...set, environment: set.metadata.environment }, options);
  const { data, response } = await call(connection.client, confirmedBy(of, confirmed));
  await follow(connection, response, options);
  if (isForPrograms(options.output))
    await showAs(options.output, data, SET_VIEW.noun, () => undefined);
  else await showSet(connection, options.output, await readSet(connection, of));
}

/** Prints a read replica set, with the name of its VPC. */
async function showSet(
  connection: Connection,
  format: Format,
  found: Schemas['ReadReplicaSetDetail'],
): Promise<void> {
  const isInVpc = found.vpc_endpoint !== undefined;
  const vpcName = isInVpc ? await vpcNames(connection, format) : noNames;
  await show(format, found, setDetailView(vpcName));
}

type ConfirmedSet = { params: OfSet['params'] & { query?: { confirm?: string } } };

const confirmedBy = ({ params }: OfSet, confirmed: string | undefined): ConfirmedSet => ({
  params: { ...params, query: given('confirm', confirmed) },
});

/** A set, with its service and the state that its service shows of it. */
async function findSetToChange(connection: Connection, service: string, name: string) {
  const found = await findService(connection, service);
  const of = await findSet(connection, found.service_id, name);
  const set = found.read_replica_sets.find(({ id }) => id === of.params.path.replica_set_id);
  return { found, of, set };
}

async function readSet(connection: Connection, of: OfSet) {
  return answered(connection.client.GET(SET_PATH, of));
}
