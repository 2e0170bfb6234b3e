/** `howdah service recover` */
import { permissionOfAction, subjectOf } from '@howdah/contract/permissions';
import type { Command } from 'commander';
import { given, verb, type Destroying, type Waiting } from '../command.ts';
import { asks, confirm, confirmName } from '../confirm.ts';
import { connect } from '../connection.ts';
import { findService } from '../find.ts';
import { note } from '../output.ts';
import { refuseBeforeAsking } from '../permission.ts';
import { change, CHANGES, readNote } from './service-shared.ts';

type Options = Waiting & Destroying & { confirm?: string };

export function addRecover(service: Command): void {
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
    .action(async (wanted: string, options: Options) => {
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
