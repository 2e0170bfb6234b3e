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
    ['KEPT', ({ retention_days: days }) => `${days} days`],
    [
      'CONTROL PLANE',
      ({ control_saved: saved }) => (saved === null ? 'not yet' : dateAndDistance(saved)),
    ],
    ['ADDED', ({ created }) => dateAndDistance(created)],
  ],
};
