/** `howdah service reset` */
import type { Schemas } from '@howdah/client';
import { permissionOfAction, subjectOf } from '@howdah/contract/permissions';
import type { Command } from 'commander';
import { given, verb, type Destroying, type Waiting } from '../command.ts';
import { asks, confirm, confirmName } from '../confirm.ts';
import { connect } from '../connection.ts';
import { findService } from '../find.ts';
import { MOMENTS, momentOf } from '../moment.ts';
import { note } from '../output.ts';
import { refuseBeforeAsking } from '../permission.ts';
import { change, CHANGES, readNote, type Call } from './service-shared.ts';

type ResetOptions = Waiting & Destroying & { to?: string; confirm?: string };
type Body = Schemas['ResetService'];

export function addReset(service: Command): void {
  verb(service, 'reset <service>', {
    does:
      'Reset a fork to a state of its parent, in its place: its URL and password stay, and what ' +
      'was written to it is lost. On a terminal it asks.',
    example: 'howdah service reset try-indexes --to beginning',
    takes: [...CHANGES, 'yes'],
  })
    .option('--to <state>', `now, beginning (of the fork), or a moment: ${MOMENTS}`, 'now')
    .option(
      '--confirm <name>',
      'the name of the fork, instead of the question; required for a PROD fork',
    )
    .action(async (wanted: string, options: ResetOptions) => {
      const target = targetOf(options.to ?? 'now');
      const connection = await connect(options);
      const found = await findService(connection, wanted);
      const { service_id: id, name, metadata } = found;
      await refuseBeforeAsking(connection, options, permissionOfAction('reset'), subjectOf(found));
      if (asks(options)) note(await readNote(id, resetWith(target)));
      const which = `the data of the ${metadata.environment} fork ${name} (${id})`;
      const isProd = metadata.environment === 'PROD';
      if (!isProd) await confirm(`Replace ${which} by that of its parent?`, options);
      const confirmed = isProd
        ? await confirmName(`replace ${which} by that of its parent`, name, options)
        : options.confirm;
      await change(
        connection,
        id,
        options,
        resetWith({ ...target, ...given('confirm', confirmed) }),
      );
    });
}

const resetWith =
  (body: Body): Call =>
  (client, { path }) =>
    client.POST('/projects/{project_id}/services/{service_id}/reset', { params: { path }, body });

function targetOf(text: string): Body {
  if (text === 'now') return { target: 'NOW' };
  if (text === 'beginning') return { target: 'BEGINNING' };
  return { target: 'PITR', target_time: momentOf('--to', text) };
}
