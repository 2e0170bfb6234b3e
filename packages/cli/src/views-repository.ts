/** The table columns and detail lines of repositories. */
import type { Schemas } from '@howdah/client';
import { dateAndDistance } from './moment.ts';
import type { View } from './output.ts';

export const REPOSITORY_VIEW: View<Schemas['Repository']> = {
  noun: 'repository',
  columns: [
    ['ID', ({ id }) => id],
    ['NAME', ({ name }) => name],
    ['LOCATION', ({ location }) => location],
    ['SERVICES', ({ services }) => String(services)],
    ['BEHIND', ({ behind_seconds: seconds }) => (seconds === null ? 'unknown' : `${seconds} s`)],
    ['PROBLEM', ({ problem }) => problem ?? 'none'],
  ],
  details: [
    [
      'BACKUPS',
      ({ backups_mb: size, last_backup: last, waiting_services: waiting }) =>
        last === null
          ? 'none yet'
          : `${size} MB, the newest ${dateAndDistance(last)}` +
            (waiting === 0 ? '' : `; ${waiting} services have none yet`),
    ],
    ['WAITING', ({ backlog_mb: megabytes }) => `${megabytes} MB of WAL`],
    ['KEPT', ({ retention_days: days }) => `${days} days`],
    [
      'CONTROL PLANE',
      ({ control_saved: saved }) => (saved === null ? 'not yet' : dateAndDistance(saved)),
    ],
    ['ADDED', ({ created }) => dateAndDistance(created)],
  ],
};
