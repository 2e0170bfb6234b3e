/** Schemas of repositories: where backups are kept off the machine. */
import { Type } from 'typebox';
import { documented, Named, Ref, StringEnum } from '../schema.ts';
import { OffMachineVerificationSchema } from './verifications.ts';
import { VISIBLE_PATTERN } from '../text.ts';
import { ENVIRONMENTS } from '../types.ts';
import { REPOSITORY_TYPES, RETENTION_DAYS } from '../values.ts';
import {
  closed,
  count,
  dateTime,
  force,
  moment,
  name,
  regionCode,
  sizeInput,
  storageGb,
  uniqueName,
} from './parts.ts';

/** The most repositories of an installation. */
export const MAX_REPOSITORIES = 4;

const text = (description: string, maxLength = 256) =>
  Type.Optional(Type.String({ minLength: 1, maxLength, pattern: VISIBLE_PATTERN, description }));

/** A key, a certificate or a file of credentials, which may have several lines. */
const secret = (description: string) =>
  Type.Optional(
    Type.String({ minLength: 1, maxLength: 16_384, pattern: '^[^\\u0000]*$', description }),
  );

/** Only storage that the type of the repository has; the service refuses other fields. */
const storageFields = {
  endpoint: text(
    's3: https://HOST or https://HOST:PORT; azure, gcs: the same, of another cloud than the ' +
      'public one; azure: without the account',
  ),
  bucket: text('s3, gcs: the bucket'),
  region: text('s3: the region of the bucket'),
  uri_style: Type.Optional(
    StringEnum(['host', 'path'], {
      description:
        's3: whether the bucket is in the host name of its addresses or in their path; ' +
        'azure: whether the account is; default: host',
    }),
  ),
  key_id: text('s3: the access key id'),
  key: secret('s3: the secret key; azure: the key; gcs: the key of a service account, in JSON'),
  key_type: Type.Optional(
    StringEnum(['shared', 'sas'], {
      description: 'azure: a key of the account, or a shared access signature',
    }),
  ),
  ca_pem: secret(
    's3, azure, gcs: certificates that sign the endpoint’s, in PEM; gcs: also that of the ' +
      'token_uri in the key; default: those of the system',
  ),
  account: text('azure: the storage account'),
  container: text('azure: the container'),
  host: text('sftp: the host'),
  port: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 65_535, description: 'sftp: the port; default: 22' }),
  ),
  user: text('sftp: the user'),
  private_key: secret('sftp: the private key, in PEM'),
  host_fingerprint: text('sftp: the SHA-256 fingerprint of the host’s key, in hexadecimal digits'),
  path: text(
    'a directory; path: on another disk of this machine; default elsewhere: /howdah',
    1024,
  ),
} as const;

export const CreateRepositoryBody = Named(
  'CreateRepository',
  Type.Object(
    {
      name: name('1 to 128 characters'),
      type: StringEnum(REPOSITORY_TYPES, { description: 'the kind of storage' }),
      ...storageFields,
      retention_days: Type.Optional(
        Type.Integer({
          minimum: RETENTION_DAYS.min,
          maximum: RETENTION_DAYS.max,
          description: `for how long backups are kept; default: ${RETENTION_DAYS.default}`,
        }),
      ),
      passphrase: secret('of a repository that has backups already: that of its recovery kit'),
      take_over: text('the id of the installation that owns the repository, which no longer runs'),
    },
    closed,
  ),
);

export type CreateRepositoryBody = Type.Static<typeof CreateRepositoryBody>;

export const RepositorySchema = Named(
  'Repository',
  Type.Object({
    id: Type.String(),
    name: Type.String(),
    type: StringEnum(REPOSITORY_TYPES),
    location: Type.String({ description: 'where it is, without credentials' }),
    retention_days: Type.Integer({ description: 'for how long backups are kept' }),
    created: dateTime('when it was added'),
    control_saved: moment('the data of the control plane in it is of this moment; null: none yet'),
    services: count('the services whose backups it has'),
    waiting_services: count('the services that have no backup in it yet'),
    last_backup: moment('its newest backup of a service is of this moment; null: none yet'),
    backups_mb: count('megabytes of all backups in it, compressed, without the WAL'),
    behind_seconds: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], {
      description:
        'the age of the oldest change of a running service that it does not have; null: unknown',
    }),
    backlog_mb: count('megabytes of WAL of all services that are not in it yet'),
    problem: Type.Union([Type.String(), Type.Null()], {
      description: 'why it gets no backups now, with what fixes it; null: it gets them',
    }),
  }),
);

export type RepositoryDocument = Type.Static<typeof RepositorySchema>;

export const RecoveryKitSchema = Named(
  'RecoveryKit',
  Type.Object({
    howdah: StringEnum(['recovery kit']),
    installation_id: Type.String({ description: 'the installation that owns the repository' }),
    repository: Type.Object(
      { name: Type.String(), type: StringEnum(REPOSITORY_TYPES), ...storageFields },
      { description: 'its storage, with the credentials' },
    ),
    passphrase: Type.String({
      minLength: 1,
      maxLength: 16_384,
      pattern: '^[^\\u0000]*$',
      description: 'of the encryption of the backups',
    }),
  }),
);

export type RecoveryKit = Type.Static<typeof RecoveryKitSchema>;

export const CreateFromKitBody = Named(
  'CreateServiceFromKit',
  Type.Object(
    {
      kit: Ref(RecoveryKitSchema),
      service: text('the service in the repository, by its id or name; only a dry run needs none'),
      name: Type.Optional(name('1 to 128 characters; default: its name there')),
      unique_name: Type.Optional(uniqueName),
      target_time: Type.Optional(
        Type.String({
          maxLength: 64,
          ...documented({ format: 'date-time' }),
          description:
            'date-time, to the microsecond: its state at this moment; default: the newest',
        }),
      ),
      region_code: Type.Optional(regionCode('a region of this installation')),
      cpu_millis: Type.Optional(sizeInput('thousandths of a core, or "shared"', true)),
      memory_gbs: Type.Optional(sizeInput('gigabytes, or "shared"', true)),
      storage_gb: Type.Optional(
        storageGb('gigabytes of disk, not less than its data takes; default: as there'),
      ),
      environment_tag: Type.Optional(StringEnum(ENVIRONMENTS, { default: 'DEV' })),
      force,
    },
    closed,
  ),
);

export type CreateFromKitBody = Type.Static<typeof CreateFromKitBody>;

/** The backups of a service in a repository. */
export const OffMachineSchema = Named(
  'OffMachineBackups',
  Type.Object({
    repository: Type.String({ description: 'the name of the repository' }),
    retention_days: Type.Integer({
      description: 'for how many days it keeps the backups of the service',
    }),
    earliest: moment('the first moment that the service can be restored to; null: none yet'),
    latest: moment('every commit up to this moment is in the repository; null: none yet'),
    backups: Type.Array(
      Type.Object({
        label: Type.String(),
        taken: dateTime('its state is that of this moment'),
        type: StringEnum(['full', 'incremental']),
        storage_mb: count('megabytes in the repository, compressed'),
      }),
      { description: 'newest first' },
    ),
    gaps: Type.Optional(
      Type.Array(
        Type.Object({
          after: dateTime('this moment can still be restored'),
          before: moment('the next backup, from which on moments can be restored; null: none yet'),
        }),
        {
          description:
            'in the order of time; nothing between the two can be restored, since WAL was ' +
            'removed before the repository had it; absent: there is none',
        },
      ),
    ),
    backlog_mb: count('megabytes of WAL that are not in it yet'),
    backlog_since: moment('when the oldest of this WAL was archived; null: there is none'),
    last_verification: Type.Optional(Ref(OffMachineVerificationSchema)),
    problem: Type.Union([Type.String(), Type.Null()], {
      description: 'why it gets no backups now, with what fixes it; null: it gets them',
    }),
  }),
);

export type OffMachineDocument = Type.Static<typeof OffMachineSchema>;
