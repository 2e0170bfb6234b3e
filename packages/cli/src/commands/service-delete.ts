import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { given, verb, type Destroying, type Waiting } from '../command.ts';
import { confirm, confirmName } from '../confirm.ts';
import { connect, type Connection } from '../connection.ts';
import { exitOf } from '../exit.ts';
import { findDeleted, findService, pathOf } from '../find.ts';
import { follow } from '../follow.ts';
import { note } from '../output.ts';

export function addEnds(service: Command): void {
  verb(service, 'delete <service>', {
    does: 'Delete a service with all its data. On a terminal it asks first; for a PROD service, for its name.',
    example: 'howdah service delete orders --yes',
    takes: ['dryRun', 'wait', 'yes'],
  }).action(async (wanted: string, options: Omit<Waiting, 'output'> & Destroying) => {
    const connection = await connect(options);
    const { service_id: id, name, metadata } = await findService(connection, wanted);
    const what = `the ${metadata.environment} service ${name} (${id}) with all its data`;
    if (metadata.environment === 'PROD') await confirmName(`delete ${what}`, name, options);
    else await confirm(`Delete ${what}?`, options);
    const { response } = await connection.client.DELETE(
      '/projects/{project_id}/services/{service_id}',
      { params: pathOf(connection, id) },
    );
    await follow(connection, response, options);
    note(
      `${name} is ${options.wait ? 'deleted' : 'being deleted'}; howdah service restore ${id} restores it while it is kept`,
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
