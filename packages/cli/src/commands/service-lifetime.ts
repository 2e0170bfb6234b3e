/** When services are deleted by themselves: `howdah service extend` and `set-expiry`. */
import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { given, verb, type Changing } from '../command.ts';
import { connect } from '../connection.ts';
import { findService } from '../find.ts';
import { Failure } from '../exit.ts';
import { dateAndDistance, momentIfGiven, momentOf, secondsOf } from '../moment.ts';
import { note } from '../output.ts';
import { change, changeFound } from './service-shared.ts';

/** Options of the commands that make a service. */
export type Lifetime = { ttl?: string; expires?: string; purgeOnExpiry?: boolean };

export function takeLifetime(command: Command): Command {
  return command
    .option(
      '--ttl <time>',
      'delete it so long after it was made, such as 2h; default: the key says',
    )
    .option('--expires <moment>', 'delete it at this moment: +2d or 2027-01-31T12:00:00Z')
    .option('--purge-on-expiry', 'it cannot be restored after that');
}

export function lifetimeOf({ ttl, expires, purgeOnExpiry }: Lifetime) {
  return {
    ...given('ttl_seconds', ttl === undefined ? undefined : secondsOf('--ttl', ttl)),
    ...given('expires_at', momentIfGiven('--expires', expires)),
    ...given('purge_on_expiry', purgeOnExpiry),
  };
}

export function addLifetimes(service: Command): void {
  addExtend(service);
  addSetExpiry(service);
}

function addExtend(service: Command): void {
  verb(service, 'extend <service> <time>', {
    does: 'Delete a service so much later than it would be.',
    example: 'howdah service extend try-indexes 2h',
    takes: ['output', 'dryRun'],
  }).action(async (wanted: string, text: string, options: Changing) => {
    const seconds = secondsOf('time', text);
    const connection = await connect(options);
    const { service_id: id, name, expires_at: end } = await findService(connection, wanted);
    if (end === undefined)
      throw new Failure(
        `${name} does not expire; howdah service set-expiry ${name} +${text} makes it end`,
      );
    const body = { expires_at: new Date(Date.parse(end) + seconds * 1000).toISOString() };
    await change(connection, id, { ...options, wait: false }, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/setExpiry', { params, body }),
    );
    note(`${name} is deleted at ${dateAndDistance(body.expires_at)}`);
  });
}

function addSetExpiry(service: Command): void {
  verb(service, 'set-expiry <service> <moment>', {
    does: 'Set when a service is deleted by itself. A PROD service never is.',
    example: 'howdah service set-expiry try-indexes +2h',
    takes: ['output', 'dryRun'],
  })
    .option('--purge-on-expiry', 'it cannot be restored after that')
    .option('--no-purge-on-expiry', 'it can be restored for a while after that')
    .action(async (wanted: string, text: string, options: Changing & Lifetime) => {
      const body: Schemas['SetExpiry'] = {
        expires_at: text === 'never' ? null : momentOf('moment', text),
        ...given('purge_on_expiry', options.purgeOnExpiry),
      };
      await changeFound(wanted, 'setExpiry', { ...options, wait: false }, (client, params) =>
        client.POST('/projects/{project_id}/services/{service_id}/setExpiry', { params, body }),
      );
    });
}
