/** The table columns and detail lines of incidents, rules and destinations of alerts. */
import type { Schemas } from '@howdah/client';
import { dateAndDistance, relative } from './moment.ts';
import type { View } from './output.ts';

export const INCIDENT_VIEW: View<Schemas['Incident']> = {
  noun: 'incident',
  columns: [
    ['ID', ({ id }) => id],
    ['STATUS', ({ status, severity }) => (status === 'open' ? severity : status)],
    ['RULE', ({ rule }) => rule],
    ['ABOUT', ({ about }) => about],
    ['OPENED', ({ opened }) => relative(opened)],
    ['RESOLVED', ({ resolved }) => (typeof resolved === 'string' ? relative(resolved) : '')],
    ['MESSAGE', ({ message }) => message],
  ],
};

export const ALERT_RULE_VIEW: View<Schemas['AlertRule']> = {
  noun: 'rule',
  columns: [
    ['RULE', ({ rule }) => rule],
    ['SEVERITY', ({ severity }) => severity],
    ['ENABLED', ({ enabled }) => (enabled ? 'yes' : 'no')],
    [
      'THRESHOLD',
      ({ threshold, unit }) => (threshold === null ? '' : `${threshold} ${unit ?? ''}`),
    ],
    ['FOR', ({ for_minutes: minutes }) => `${minutes} min`],
    ['ABOUT', ({ about }) => about],
  ],
};

export const DESTINATION_VIEW: View<Schemas['AlertDestination']> = {
  noun: 'destination',
  id: ({ id }) => id,
  columns: [
    ['NAME', ({ name }) => name],
    ['TYPE', ({ type }) => type],
    ['TO', ({ config: { url, to } }) => url ?? to?.join(', ') ?? ''],
    ['LAST SUCCESS', ({ last_success: at }) => (typeof at === 'string' ? relative(at) : '')],
  ],
  details: [
    [
      'SERVER',
      ({ config: { host, port, encryption } }) =>
        host === undefined ? '' : `${host}:${port ?? ''} (${encryption ?? ''})`,
    ],
    ['USERNAME', ({ config: { username } }) => username ?? ''],
    ['FROM', ({ config: { from } }) => from ?? ''],
    [
      'QUIET HOURS',
      ({ quiet_hours: quiet }) =>
        quiet === null
          ? ''
          : `${quiet.from}-${quiet.to} ${quiet.time_zone}` +
            (quiet.critical_passes ? ', critical messages pass' : ''),
    ],
    ['WARNING', ({ warning }) => warning ?? ''],
    ['SECRET', ({ secret }) => (secret === undefined ? '' : `${secret} (shown only once)`)],
    ['CREATED', ({ created }) => dateAndDistance(created)],
  ],
};
