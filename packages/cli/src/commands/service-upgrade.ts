/** `howdah service upgrade` */
import { DryRunError, type HowdahClient } from '@howdah/client';
import { permissionOfAction, subjectOf } from '@howdah/contract/permissions';
import type { Command } from 'commander';
import { given, verb, type Destroying, type Waiting } from '../command.ts';
import { asks, confirm, confirmName } from '../confirm.ts';
import { connect } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findService, pathOf } from '../find.ts';
import { note } from '../output.ts';
import { refuseBeforeAsking } from '../permission.ts';
import { change, CHANGES } from './service-shared.ts';

type Options = Waiting & Destroying & { to?: string; try?: true; undo?: true; confirm?: string };
type Body = Parameters<typeof post>[2];

export function addUpgrade(service: Command): void {
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
    .action(async (wanted: string, options: Options) => {
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
  options: Options,
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
