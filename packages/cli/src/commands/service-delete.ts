import type { Schemas } from '@howdah/client';
import { permissionOfAction, PURGE, subjectOf } from '@howdah/contract/permissions';
import type { Command } from 'commander';
import { given, verb, type Destroying, type Waiting } from '../command.ts';
import { confirm, confirmName } from '../confirm.ts';
import { connect, type Connection } from '../connection.ts';
import { exitOf } from '../exit.ts';
import { findDeleted, findService, pathOf } from '../find.ts';
import { follow } from '../follow.ts';
import { note } from '../output.ts';
import { refuseBeforeAsking } from '../permission.ts';

export function addEnds(service: Command): void {
  verb(service, 'delete <service>', {
    does: 'Delete a service with all its data. On a terminal it asks for confirmation; for a PROD service, for its name.',
    example: 'howdah service delete orders --yes',
    takes: ['dryRun', 'wait', 'yes'],
  }).action(async (wanted: string, options: Omit<Waiting, 'output'> & Destroying) => {
    const connection = await connect(options);
    const found = await findService(connection, wanted);
    const { service_id: id, name, metadata } = found;
    await refuseBeforeAsking(connection, options, permissionOfAction('delete'), subjectOf(found));
    const what = `the ${metadata.environment} service ${name} (${id}) with all its data`;
    if (metadata.environment === 'PROD') await confirmName(`delete ${what}`, name, options);
    else await confirm(`Delete ${what}?`, options);
    const { response } = await connection.client.DELETE(
      '/projects/{project_id}/services/{service_id}',
      { params: pathOf(connection, id) },
    );
    await follow(connection, response, options);
    note(
      `${name} is ${options.wait ? 'deleted' : 'being deleted'}; howdah service restore ${id} restores it as long as its data is kept`,
    );
  });

  verb(service, 'purge <service>', {
    does: 'Remove a service, or a deleted one, for good, and free its disk space. Needs an admin key; asks for the name on a terminal.',
    example: 'howdah service purge orders --confirm orders',
    takes: ['dryRun', 'wait', 'yes'],
  })
    .option(
      '--confirm <name>',
      'the name of the service, instead of the question; required for a PROD service',
    )
    .action(
      async (
        wanted: string,
        options: Omit<Waiting, 'output'> & Destroying & { confirm?: string },
      ) => {
        const connection = await connect(options);
        const found = await findAlsoDeleted(connection, wanted);
        const { service_id: id, name, environment } = found;
        await refuseBeforeAsking(connection, options, PURGE, { createdBy: found.created_by });
        const confirmed = await confirmName(
          `remove the ${environment} service ${name} (${id}) with all its data, so that nobody can restore it`,
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
    return findDeleted(connection, wanted);
  }
}
