import { type Schemas, DryRunError, type HowdahClient } from '@howdah/client';
import { SERVICE_STATUSES } from '@howdah/contract/status';
import { Option, type Command } from 'commander';
import { permissionOfAction, subjectOf, PURGE } from '@howdah/contract/permissions';
import {
  given,
  noun,
  verb,
  type Printing,
  type Confirming,
  type Waiting,
  type Destroying,
} from '../command.ts';
import { answered, connect, type Connection } from '../connection.ts';
import {
  findPath,
  findService,
  DELETED_SERVICES,
  ofProject,
  readService,
  find,
  pathOf,
} from '../find.ts';
import { followService, follow } from '../follow.ts';
import { showList, note } from '../output.ts';
import { DELETED_VIEW, MEMBER_VIEW, serviceView } from '../views.ts';
import { noteProblems } from '../problems.ts';
import { addServiceLogs } from './logs.ts';
import { addServiceOperations } from './operation.ts';
import { addChanges } from './service-changes.ts';
import { addCreates, addCreateFromKit } from './service-create.ts';
import { addDiff } from './service-diff.ts';
import { addLifetimes } from './service-lifetime.ts';
import { addReset } from './service-reset.ts';
import { addSleep } from './service-sleep.ts';
import {
  changeFound,
  PROTECTED_CHANGES,
  change,
  CHANGES,
  readNote,
  confirmService,
  showService,
} from './service-shared.ts';
import { asks, confirm, confirmName } from '../confirm.ts';
import { refuseBeforeAsking } from '../permission.ts';
import { exitOf, Failure } from '../exit.ts';

type Service = Schemas['Service'];

export function addService(program: Command): void {
  const service = noun(program, 'service', 'Create and manage services.');
  addReads(service);
  addServiceLogs(service);
  addServiceOperations(service);
  addCreates(service);
  addCreateFromKit(service);
  addRecover(service);
  addReset(service);
  addUpgrade(service);
  addMove(service);
  addChanges(service);
  addLifetimes(service);
  addSleep(service);
  addDiff(service);
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
      await noteProblems(connection, services);
    });

  verb(service, 'get <service>', {
    does: 'Show a service.',
    example: 'eval "$(howdah service get orders -o env)"',
    takes: ['output'],
  })
    .option('--wait', 'wait until no operation is running, and print its steps')
    .action(async (name: string, { output, wait }: Printing & { wait?: true }) => {
      const connection = await connect();
      const named = await findService(connection, name);
      if (wait === true) await followService(connection, named.service_id);
      const found = wait === true ? await readService(connection, named.service_id) : named;
      await showService(connection, output, found);
      await noteProblems(connection, [found]);
    });

  verb(service, 'members <service>', {
    does: 'Show the servers of a service: its primary and its standbys.',
    example: 'howdah service members orders',
    takes: ['output'],
  }).action(async (name: string, { output }: Printing) => {
    const connection = await connect();
    const servers = connection.client.GET(
      '/projects/{project_id}/services/{service_id}/members',
      await findPath(connection, name),
    );
    await showList(output, await answered(servers), MEMBER_VIEW);
  });

  verb(service, 'list-deleted', {
    does: 'List deleted services that can be restored.',
    example: 'howdah service list-deleted',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    await showList(output, await DELETED_SERVICES.list(await connect()), DELETED_VIEW);
  });
}

// `howdah service move`

type Options = Waiting & Confirming & { region: string };

function addMove(service: Command): void {
  verb(service, 'move <service>', {
    does:
      'Move a service from a region on a machine to one on Kubernetes, or back. It runs while it ' +
      'is copied, and has another endpoint then. With --dry-run: everything that is in the way.',
    example: 'howdah service move orders --region kube',
    takes: PROTECTED_CHANGES,
  })
    .requiredOption('--region <code>', 'the other region; howdah region list shows them')
    .action(async (wanted: string, { region, ...options }: Options) =>
      changeFound(wanted, 'move', options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/move', {
          params,
          body: { region_code: region },
        }),
      ),
    );
}

// `howdah service recover`

type RecoverOptions = Waiting & Destroying & { confirm?: string };

function addRecover(service: Command): void {
  verb(service, 'recover <service>', {
    does:
      'Restore the lost or damaged data of a service from its backups, in its place. ' +
      'On a terminal it says what comes back, and asks. Needs an admin key.',
    example: 'howdah service recover orders',
    takes: [...CHANGES, 'yes'],
  })
    .option(
      '--confirm <name>',
      'the name of the service, instead of the question; required for a PROD service',
    )
    .action(async (wanted: string, options: RecoverOptions) => {
      const connection = await connect(options);
      const found = await findService(connection, wanted);
      const { service_id: id, name, metadata } = found;
      await refuseBeforeAsking(
        connection,
        options,
        permissionOfAction('recover'),
        subjectOf(found),
      );
      // Which moment a recovery brings back.
      if (asks(options))
        note(
          await readNote(id, (client, params) =>
            client.POST('/projects/{project_id}/services/{service_id}/recover', {
              params,
              body: {},
            }),
          ),
        );
      const which = `the data of the ${metadata.environment} service ${name} (${id})`;
      if (metadata.environment !== 'PROD')
        await confirm(`Replace ${which} by its backup?`, options);
      const confirmed =
        metadata.environment === 'PROD'
          ? await confirmName(`replace ${which} by its backup`, name, options)
          : undefined;
      const body = given('confirm', confirmed);
      await change(connection, id, options, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/recover', { params, body }),
      );
    });
}

type Ending = Omit<Waiting, 'output'> & Destroying & Confirming;

function addEnds(service: Command): void {
  verb(service, 'delete <service>', {
    does:
      'Delete a service with all its data. On a terminal it asks for confirmation; ' +
      'for the name of a PROD service.',
    example: 'howdah service delete orders --yes',
    takes: ['dryRun', 'wait', 'yes', 'confirm'],
  }).action(async (wanted: string, options: Ending) => {
    const connection = await connect(options);
    const found = await findService(connection, wanted);
    const { service_id: id, name, metadata } = found;
    const confirmed = await confirmService(connection, found, 'delete', options, () =>
      sayWhatGoes(id, { confirm: name }),
    );
    const what = `the ${metadata.environment} service ${name} (${id}) with all its data`;
    if (confirmed === undefined) await confirm(`Delete ${what}?`, options);
    const { data, response } = await connection.client.DELETE(
      '/projects/{project_id}/services/{service_id}',
      { params: { ...pathOf(connection, id), query: given('confirm', confirmed) } },
    );
    await follow(connection, response, options);
    const restore = data?.restore_note ?? `howdah service restore ${id} restores it`;
    note(`${name} is ${options.wait ? 'deleted' : 'being deleted'}; ${restore}`);
  });

  verb(service, 'purge <service>', {
    does:
      'Remove a service, or a deleted one, for good, and free its disk space. ' +
      'Needs an admin key; asks for the name on a terminal.',
    example: 'howdah service purge orders --confirm orders',
    takes: ['dryRun', 'wait', 'yes', 'confirm'],
  }).action(async (wanted: string, options: Ending) => {
    const connection = await connect(options);
    const found = await findAlsoDeleted(connection, wanted);
    const { service_id: id, name, environment } = found;
    await refuseBeforeAsking(connection, options, PURGE, { createdBy: found.created_by });
    if (asks(options)) await sayWhatGoes(id, { purge: 'true', confirm: name });
    const confirmed = await confirmName(
      `remove the ${environment} service ${name} (${id}) with all its data, ` +
        'so that nobody can restore it',
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
  });
}

/** Says before the question which backups go with a service. */
async function sayWhatGoes(id: string, query: { purge?: 'true'; confirm: string }): Promise<void> {
  const text = await readNote(id, (client, params) =>
    client.DELETE('/projects/{project_id}/services/{service_id}', { params: { ...params, query } }),
  );
  if (text !== '') note(text);
}

/** A service, or a deleted one that can be restored. */
async function findAlsoDeleted(
  connection: Connection,
  wanted: string,
): Promise<Pick<Schemas['DeletedService'], 'service_id' | 'name' | 'environment' | 'created_by'>> {
  try {
    const found = await findService(connection, wanted);
    return { ...found, environment: found.metadata.environment };
  } catch (error) {
    if (exitOf(error) !== 'notFound') throw error;
    return find(connection, DELETED_SERVICES, wanted);
  }
}

// `howdah service upgrade`

type UpgradeOptions = Waiting &
  Destroying & { to?: string; try?: true; undo?: true; confirm?: string };
type Body = Parameters<typeof post>[2];

function addUpgrade(service: Command): void {
  verb(service, 'upgrade <service>', {
    does:
      'Upgrade a service to a newer major version of PostgreSQL, in its place. Nobody can ' +
      'connect while its data is copied; --try does that with a copy, and says how long it takes.',
    example: 'howdah service upgrade orders --to 18 --try',
    takes: [...CHANGES, 'yes'],
  })
    .option('--to <version>', 'the major version of PostgreSQL; howdah region list shows them')
    .option('--try', 'upgrade a copy, remove it, and leave the service alone')
    .option(
      '--undo',
      'bring the data from before the last upgrade back; what was written since then is lost',
    )
    .option(
      '--confirm <name>',
      'the name of the service, instead of the question; required for --undo and a PROD service',
    )
    .action(async (wanted: string, options: UpgradeOptions) => {
      if ((options.to === undefined) === (options.undo === undefined))
        throw new Failure('--to VERSION is needed, or --undo', 'usage');
      if (options.undo === true && options.try === true)
        throw new Failure('--try goes with --to', 'usage');
      const connection = await connect(options);
      const found = await findService(connection, wanted);
      const { service_id: id } = found;
      const permission = permissionOfAction(options.undo === true ? 'undoUpgrade' : 'upgrade');
      await refuseBeforeAsking(connection, options, permission, subjectOf(found));
      const asked: Body =
        options.undo === true
          ? { undo: true }
          : { ...given('pg_version', options.to), ...given('try', options.try) };
      if (options.try !== true && asks(options)) note(await readEffect(id, asked));
      const confirmed = options.try === true ? undefined : await readName(found, options);
      const body = { ...asked, ...given('confirm', confirmed) };
      await change(connection, id, options, (client, params) => post(client, params, body));
    });
}

const post = (
  client: HowdahClient,
  params: ReturnType<typeof pathOf>,
  body: { pg_version?: string; try?: boolean; undo?: boolean; confirm?: string },
) => client.POST('/projects/{project_id}/services/{service_id}/upgrade', { params, body });

/** @returns the name of the service, where it was given or is needed */
async function readName(
  { service_id: id, name, metadata }: Awaited<ReturnType<typeof findService>>,
  options: UpgradeOptions,
): Promise<string | undefined> {
  const which = `the ${metadata.environment} service ${name} (${id})`;
  if (options.undo === true) return confirmName(`undo the upgrade of ${which}`, name, options);
  if (metadata.environment === 'PROD') return confirmName(`upgrade ${which}`, name, options);
  await confirm(`Upgrade ${which} to PostgreSQL ${options.to}?`, options);
  return options.confirm;
}

/** Asks the API, by a dry run, what the change does. */
async function readEffect(id: string, body: Body): Promise<string> {
  const connection = await connect({ dryRun: true });
  try {
    await post(connection.client, pathOf(connection, id), body);
  } catch (error) {
    if (error instanceof DryRunError) return error.answer.note ?? '';
    throw error;
  }
  return '';
}
