/** Schemas of backups. */
import { Type } from 'typebox';
import { Named, Ref, StringEnum } from '../schema.ts';
import { NAME_MAX_CHARACTERS } from '../types.ts';
import { RETENTION_DAYS } from '../values.ts';
import { closed, dateTime, moment } from './parts.ts';
import { OffMachineSchema } from './repositories.ts';
import { VerificationSchema } from './verifications.ts';

/**
 * How a data directory is cloned: in the same time whatever its size, by the number of its files,
 * or byte by byte.
 */
export const CLONE_METHODS = ['subvolume', 'reflink', 'copy'] as const;

export type CloneMethod = (typeof CLONE_METHODS)[number];

const ownRetention = Type.Union([Type.Integer(), Type.Null()], {
  description:
    'for how many days each repository keeps the backups of the service; null: as it says itself',
});

export const BackupsSchema = Named(
  'Backups',
  Type.Object({
    window: Type.Object({
      earliest: moment(
        'from this moment on the service can be forked at a point in time; null: not yet',
      ),
      latest: moment('up to this one'),
      days: Type.Number({ description: 'for how many days they are kept on its machine' }),
      gaps: Type.Optional(
        Type.Array(
          Type.Object({
            after: dateTime('this moment can still be reached'),
            before: dateTime('this one can be reached again'),
            because: Type.Optional(
              StringEnum(['storage'], {
                description:
                  'archived WAL counts towards storage_gb and gave way; absent: it should be there',
              }),
            ),
          }),
          {
            description:
              'in the order of time; nothing between the two can be reached, ' +
              'since a WAL file is missing from the archive; absent: there is none',
          },
        ),
      ),
      gave_way: Type.Optional(
        Type.Object(
          {
            last: dateTime('when archived WAL gave way last'),
            until: dateTime('until then a snapshot from before the growth and its WAL stay'),
          },
          {
            description:
              'the service grew beyond its storage_gb by WAL: moments of the growth are removed, ' +
              'those from before it stay for six hours; absent: that did not happen within them',
          },
        ),
      ),
    }),
    snapshots: Type.Array(
      Type.Object({
        id: Type.String(),
        taken: dateTime('its state is that of this moment'),
        kind: StringEnum(['initial', 'scheduled']),
        storage_mb: Type.Integer({
          description:
            'megabytes; on a file system that clones by reference most of them are ' +
            'shared with the service',
        }),
        verification: Type.Optional(Ref(VerificationSchema)),
      }),
      { description: 'newest first' },
    ),
    archive_mb: Type.Integer({
      description:
        'megabytes of archived WAL; in the object store of a region those of base backups too',
    }),
    last_verification: Type.Optional(Ref(VerificationSchema)),
    storage: Type.Union(
      [
        Type.Object({
          total_mb: Type.Integer(),
          owned_mb: Type.Integer({ description: 'what would be free without this service' }),
          shared_mb: Type.Integer({
            description: 'shared with its snapshots, its forks, its parent or its template',
          }),
        }),
        Type.Null(),
      ],
      {
        description: 'megabytes of the data, without archive and snapshots; null if unknown',
      },
    ),
    off_machine: Type.Array(Ref(OffMachineSchema), {
      description: 'what each repository has of the service',
    }),
    own_retention_days: ownRetention,
    unprotected: Type.Optional(
      Type.String({
        description: 'what these backups do not protect from; absent: a repository has copies',
      }),
    ),
    problem: Type.Union([Type.String(), Type.Null()], {
      description: 'the problem of the backups; null: none',
    }),
  }),
);

export type Backups = Type.Static<typeof BackupsSchema>;

/** Tiger Cloud has further states of a copy; a copy is listed here once it is complete. */
const BACKUP_COPY_STATUSES = ['FINISHED'] as const;

/**
 * A backup as Tiger Cloud lists them, and how long they are kept.
 * Sources: what the Tiger Cloud plugin of github.com/Infrawrench/Infrawrench reads and writes; the
 * schemas Backup and BackupRegionState in openapi.yaml of github.com/timescale/tiger-cli (f93dac5).
 */
export const BackupSchema = Named(
  'Backup',
  Type.Object({
    label: Type.String({ description: 'the id of the snapshot, or of the backup in a repository' }),
    type: StringEnum(['FULL', 'INCREMENTAL'], {
      description: 'each snapshot is complete; INCREMENTAL: in a repository only',
    }),
    started_at: dateTime('its state is that of this moment'),
    finished_at: dateTime('when its last copy was complete'),
    duration_seconds: Type.Integer({
      minimum: 0,
      description: 'of the slowest copy to a repository; 0: a snapshot is taken at once',
    }),
    size_bytes: Type.Integer({ description: 'to the megabyte, with what is shared' }),
    regions: Type.Array(
      Type.Object({ region_code: Type.String(), status: StringEnum(BACKUP_COPY_STATUSES) }),
      { description: 'where it is: in the region of its service, in repositories by their names' },
    ),
  }),
);

export type Backup = Type.Static<typeof BackupSchema>;

/** A repository, where Tiger Cloud has another region for the backups of a service. */
export const BackupRegionSchema = Named(
  'BackupRegion',
  Type.Object({
    region_code: Type.String({ description: 'the name of the repository' }),
    created: dateTime('when the repository was added'),
  }),
);

export type BackupRegion = Type.Static<typeof BackupRegionSchema>;

export const BackupRegionBody = Named(
  'AddBackupRegion',
  Type.Object({
    region_code: Type.String({
      minLength: 1,
      maxLength: NAME_MAX_CHARACTERS,
      description: 'the name of a repository',
    }),
  }),
);

export const RunBackupBody = Named(
  'RunBackup',
  Type.Object(
    {
      full: Type.Optional(
        Type.Boolean({
          description: 'all data, not only what has changed since the last backup; default: false',
        }),
      ),
    },
    closed,
  ),
);

export type RunBackupBody = Type.Static<typeof RunBackupBody>;

export const BackupRetentionSchema = Named(
  'BackupRetention',
  Type.Object({
    type: StringEnum(['TIME']),
    retention_days: Type.Number({
      description:
        'for how many days the backups are kept: in the repository that keeps them longest; ' +
        'without one, on the machine of the service',
    }),
    own_retention_days: ownRetention,
    local_days: Type.Number({
      description:
        'for how many days snapshots and WAL are on the machine of the service; the operator ' +
        'sets it for all services (HOWDAH_BACKUP_DAYS)',
    }),
    repositories: Type.Array(
      Type.Object({ repository: Type.String(), retention_days: Type.Integer() }),
      { description: 'for how many days each repository keeps the backups of the service' },
    ),
  }),
);

export type BackupRetention = Type.Static<typeof BackupRetentionSchema>;

export const SetBackupRetentionBody = Named(
  'SetBackupRetention',
  Type.Object({
    type: Type.Optional(StringEnum(['TIME'], { description: 'backups are kept for a time' })),
    retention_days: Type.Union(
      [Type.Integer({ minimum: RETENTION_DAYS.min, maximum: RETENTION_DAYS.max }), Type.Null()],
      {
        description:
          `for how many days the repositories keep the backups of the service, ` +
          `${RETENTION_DAYS.min} to ${RETENTION_DAYS.max}; null: as each repository says`,
      },
    ),
  }),
);

export type SetBackupRetentionBody = Type.Static<typeof SetBackupRetentionBody>;

/** How quotas are enforced. */
export const STORAGE_METHODS = ['measured'] as const;

export type StorageMethod = (typeof STORAGE_METHODS)[number];
