/** How projects are shown. */
import { PROJECT_LIMITS, RETENTION_DAYS } from '@howdah/contract/values';
import type { Schemas } from '@howdah/client';
import type { View } from './output.ts';

export const PROJECT_VIEW: View<Schemas['Project']> = {
  noun: 'project',
  columns: [
    ['ID', ({ id }) => id],
    ['NAME', ({ name }) => name],
  ],
};

export const PROJECT_DETAIL_VIEW: View<Schemas['ProjectDetails']> = {
  noun: 'project',
  columns: PROJECT_VIEW.columns,
  details: [
    ...PROJECT_LIMITS.map(
      (limit) =>
        [
          limit.replace('_', ' ').toUpperCase(),
          ({ limits, used }: Schemas['ProjectDetails']) => {
            const most = limits[limit];
            return most === null || most === undefined
              ? `${used[limit]}, no limit`
              : `${used[limit]} of ${most}`;
          },
        ] as const,
    ),
    [
      'CPU IN USE',
      ({ in_use: { cpu_millis: used, cpu_beyond_millis: beyond } }) =>
        `${used}${beyond === 0 ? '' : `, ${beyond} of it beyond the guarantees`}`,
    ],
    [
      'BACKUP RETENTION',
      ({ limits: { backup_retention_days: most } }) => `${most ?? RETENTION_DAYS.max} days at most`,
    ],
  ],
};
