/** When services fall asleep: `howdah service set-auto-suspend` and `awake`. */
import type { Schemas } from '@howdah/client';
import type { Command } from 'commander';
import { given, verb, type Confirming, type Printing, type Waiting } from '../command.ts';
import { answered, connect } from '../connection.ts';
import { findService, pathOf } from '../find.ts';
import { dateAndDistance, lengthOf, relative, secondsOf } from '../moment.ts';
import { isForPrograms, note, show, showList, type View } from '../output.ts';
import { changeFound, PROTECTED_CHANGES } from './service-shared.ts';

export const AUTO_SUSPEND = 'fall asleep when nobody has used it for so long, such as 5m; or never';

/** The field of a body; none: the option was not given. */
export function autoSuspendOf(text: string | undefined): {
  auto_suspend_seconds?: number | null;
} {
  return given(
    'auto_suspend_seconds',
    text === undefined ? undefined : suspendTime('--auto-suspend', text),
  );
}

const suspendTime = (argument: string, text: string): number | null =>
  text === 'never' ? null : secondsOf(argument, text);

export function addSleep(service: Command): void {
  verb(service, 'set-auto-suspend <service> <time>', {
    does:
      'Set when a service falls asleep: its server stops, and the next client has it started. ' +
      'The first time, and for never, its server is started again.',
    example: 'howdah service set-auto-suspend try-indexes 5m',
    takes: PROTECTED_CHANGES,
  }).action(async (wanted: string, text: string, options: Waiting & Confirming) => {
    const body = { auto_suspend_seconds: suspendTime('time', text) };
    await changeFound(wanted, 'setAutoSuspend', options, (client, params) =>
      client.POST('/projects/{project_id}/services/{service_id}/setAutoSuspend', { params, body }),
    );
  });
  verb(service, 'awake <service>', {
    does: 'Show what keeps a service awake. A service that sleeps is not woken for that.',
    example: 'howdah service awake try-indexes',
    takes: ['output'],
  }).action(async (wanted: string, { output }: Printing) => {
    const connection = await connect();
    const { service_id: id, name } = await findService(connection, wanted);
    const awake = await answered(
      connection.client.GET('/projects/{project_id}/services/{service_id}/awake', {
        params: pathOf(connection, id),
      }),
    );
    const isRead = !isForPrograms(output);
    if (isRead) note(summaryOf(name, awake));
    await (isRead && awake.held_by.length > 0
      ? showList(output, awake.held_by, HOLDER_VIEW)
      : show(output, awake, AWAKE_VIEW));
  });
}

/** Whether a service sleeps. */
const AWAKE_VIEW: View<Schemas['Awake']> = {
  noun: 'awake',
  columns: [
    ['ASLEEP', ({ suspended }) => (suspended ? 'yes' : 'no')],
    ['LAST USED', ({ last_active_at: at }) => (at === undefined ? '' : dateAndDistance(at))],
  ],
};

/** The sessions and other parts that keep a service awake. */
const HOLDER_VIEW: View<Schemas['Awake']['held_by'][number]> = {
  noun: 'holder',
  columns: [
    ['KIND', ({ kind, listens }) => (listens ? 'session (LISTEN)' : kind.replaceAll('_', ' '))],
    ['NAME', ({ name }) => name],
    ['USER', ({ user }) => user ?? ''],
    ['DATABASE', ({ database }) => database ?? ''],
    ['ADDRESS', ({ address }) => address ?? ''],
    ['STATE', ({ state }) => state ?? ''],
    ['SINCE', ({ since }) => (since === null ? '' : relative(since))],
  ],
};

/** Whether a service sleeps, in words. */
function summaryOf(
  name: string,
  {
    auto_suspend_seconds: seconds,
    suspended,
    last_active_at: last,
    held_by: holders,
  }: Schemas['Awake'],
): string {
  if (seconds === null)
    return `${name} never falls asleep; howdah service set-auto-suspend ${name} 5m lets it`;
  const used = last === undefined ? '' : `, was last used ${relative(last)}`;
  if (suspended) return `${name} sleeps${used}; the next client wakes it`;
  const when = `and falls asleep when nobody has used it for ${lengthOf(seconds)}`;
  return holders.length === 0
    ? `${name} is awake${used}, ${when}`
    : `${name} is awake${used}, ${when} and nothing of this is left:`;
}
