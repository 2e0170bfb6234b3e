import type { Schemas } from '@howdah/client';
import { PURGE } from '@howdah/contract/permissions';
import type { Command } from 'commander';
import { given, verb, type Confirming, type Destroying, type Waiting } from '../command.ts';
import { asks, confirm, confirmName } from '../confirm.ts';
import { connect, type Connection } from '../connection.ts';
import { exitOf } from '../exit.ts';
import { findDeleted, findService, pathOf } from '../find.ts';
import { follow } from '../follow.ts';
import { note } from '../output.ts';
import { refuseBeforeAsking } from '../permission.ts';
import { confirmService, readNote } from './service-shared.ts';

type Ending = Omit<Waiting, 'output'> & Destroying & Confirming;

export function addEnds(service: Command): void {
  verb(service, 'delete <service>', {
    does: 'Delete a service with all its data. On a terminal it asks for confirmation; for the name of a PROD service.',
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
    does: 'Remove a service, or a deleted one, for good, and free its disk space. Needs an admin key; asks for the name on a terminal.',
    example: 'howdah service purge orders --confirm orders',
    takes: ['dryRun', 'wait', 'yes', 'confirm'],
  }).action(async (wanted: string, options: Ending) => {
    const connection = await connect(options);
    const found = await findAlsoDeleted(connection, wanted);
    const { service_id: id, name, environment } = found;
    await refuseBeforeAsking(connection, options, PURGE, { createdBy: found.created_by });
    if (asks(options)) await sayWhatGoes(id, { purge: 'true', confirm: name });
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
    return findDeleted(connection, wanted);
  }
}
