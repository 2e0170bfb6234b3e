/** Schemas of keys, sessions and links. */
import { Type } from 'typebox';
import { Named, oldSpelling, Ref, StringEnum } from '../schema.ts';
import { closed, dateTime, name, count, limit, suspendSeconds, ttlSeconds } from './parts.ts';
import { ROLES } from '../types.ts';
import { LOOPBACK_PATTERN } from '../text.ts';
import { RETENTION_DAYS } from '../values.ts';

/** The bounds of the services that a key makes. */
const boundsOfKey = {
  service_ttl_seconds: Type.Optional(
    ttlSeconds('the lifetime of a service that it makes without one'),
  ),
  max_service_ttl_seconds: Type.Optional(
    ttlSeconds('the longest lifetime that it gives to a service; absent: any, or none'),
  ),
  service_auto_suspend_seconds: Type.Optional(
    suspendSeconds({
      description:
        'services that it creates and forks fall asleep after so long, unless they are PROD, ' +
        'cannot, or are made with a time of their own',
    }),
  ),
  max_services: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      description: 'so many services that it made are there at a time; absent: any number',
    }),
  ),
};

export const KeySchema = Named(
  'Key',
  Type.Object({
    public_key: Type.String({ description: 'names the key; may be logged' }),
    name: Type.String(),
    role: StringEnum(ROLES),
    dry_run_only: Type.Boolean({
      description: 'every change it requests is a dry run',
    }),
    fork_only: Type.Boolean({
      description: 'it reads, forks, and changes nothing but forks that it made',
    }),
    ...boundsOfKey,
    created: dateTime('when it was made'),
    created_by: Type.Union([Type.String(), Type.Null()], {
      description: 'public key; null: made by the first start',
    }),
    expires_at: Type.Union([dateTime('it is refused from then on'), Type.Null()]),
    revoked_at: Type.Union([dateTime('it is refused since'), Type.Null()]),
    last_used: Type.Union([dateTime('to the minute'), Type.Null()]),
    secret_key: Type.Optional(Type.String({ description: 'in the answer to create only' })),
  }),
);

export type Key = Type.Static<typeof KeySchema>;

export const CreateKeyBody = Named(
  'CreateKey',
  Type.Object(
    {
      name: name('1 to 128 characters'),
      role: StringEnum(ROLES, { description: 'admin, developer or viewer' }),
      expires_at: Type.Optional(dateTime('date-time in the future; absent: never')),
      dry_run_only: Type.Optional(Type.Boolean({ description: 'it may only make dry runs' })),
      fork_only: Type.Optional(
        Type.Boolean({ description: 'it may change nothing but forks that it made' }),
      ),
      ...boundsOfKey,
    },
    closed,
  ),
);

export type CreateKeyBody = Type.Static<typeof CreateKeyBody>;

export const KeyProjectSchema = Named(
  'KeyProject',
  Type.Object({ id: Type.String(), name: Type.String(), plan_type: Type.String() }),
);

export const IssuingUserSchema = Named(
  'IssuingUser',
  Type.Object({
    id: Type.String(),
    name: Type.String(),
    email: Type.String({ format: 'email' }),
  }),
);

export const ApiKeyInfoSchema = Named(
  'ApiKeyInfo',
  Type.Object({
    public_key: Type.String(),
    name: Type.String(),
    role: StringEnum(ROLES, { description: 'what the key may do' }),
    fork_only: Type.Optional(
      Type.Boolean({ description: 'whether it changes only forks that it made' }),
    ),
    dry_run_only: Type.Optional(
      Type.Boolean({ description: 'whether each change that it asks for is a dry run' }),
    ),
    ...boundsOfKey,
    created: dateTime('when the key was made'),
    project: Ref(KeyProjectSchema),
    issuing_user: Ref(IssuingUserSchema),
  }),
);

export const AuthInfoSchema = Named(
  'AuthInfo',
  Type.Object({
    type: StringEnum(['apiKey']),
    api_key: Ref(ApiKeyInfoSchema),
    apiKey: oldSpelling(Ref(ApiKeyInfoSchema), 'ApiKeyDeprecated'),
  }),
);

/** A browser's way into the web console. */
export const OpenLinkBody = Named(
  'OpenLink',
  Type.Object({ token: Type.String({ minLength: 1, maxLength: 128 }) }),
);

export const ConsoleLinkSchema = Named(
  'ConsoleLink',
  Type.Object({
    path: Type.String({ description: 'below the address of the installation' }),
    expires: dateTime('until then, once'),
  }),
);

// Schemas of logins that a person approves in the web console for a program.

/** Letters of a user code: no vowels, so that no code is a word. */
export const USER_CODE_LETTERS = 'BCDFGHJKLMNPQRSTVWXZ';
/** As people type a code: in any case, with or without the hyphen. */
const GROUP = `[${USER_CODE_LETTERS}${USER_CODE_LETTERS.toLowerCase()}]{4}`;
const USER_CODE_PATTERN = `^${GROUP}-?${GROUP}$`;

const userCode = Type.String({
  pattern: USER_CODE_PATTERN,
  description: 'the code that the program shows, like BCDF-GHJK',
});
const token = (description: string) => Type.String({ minLength: 1, maxLength: 128, description });

export const StartLoginBody = Named(
  'StartLogin',
  Type.Object(
    {
      client_name: name('the program and its machine, as the person who approves it reads them'),
      redirect_uri: Type.Optional(
        Type.String({
          pattern: LOOPBACK_PATTERN,
          description: 'where the browser returns to: an address of the machine itself',
        }),
      ),
      code_challenge: Type.Optional(
        Type.String({
          pattern: '^[A-Za-z0-9_-]{43}$',
          description: 'of PKCE with S256 (RFC 7636); needed with redirect_uri, and only then',
        }),
      ),
    },
    closed,
  ),
);
export type StartLoginBody = Type.Static<typeof StartLoginBody>;

export const DeviceLoginSchema = Named(
  'DeviceLogin',
  Type.Object({
    device_code: Type.String({ description: 'secret: with it the program collects its key' }),
    user_code: Type.String({ description: 'the program shows it; it is typed in the console' }),
    verification_uri: Type.String({ description: 'the page of the console that asks for it' }),
    verification_uri_complete: Type.String({ description: 'the same page with the code typed' }),
    expires_in: Type.Integer({ description: 'seconds until both codes end' }),
    interval: Type.Integer({ description: 'seconds between two questions of the program' }),
  }),
);

export const CollectLoginBody = Named(
  'CollectLogin',
  Type.Object(
    {
      device_code: token('from the answer to the start of the login'),
      code_verifier: Type.Optional(token('of PKCE, where the login began with code_challenge')),
    },
    closed,
  ),
);
export type CollectLoginBody = Type.Static<typeof CollectLoginBody>;

export const LoginKeySchema = Named(
  'LoginKey',
  Type.Object({
    access_token: Type.String({ description: '<public_key>:<secret_key>, shown only once' }),
    token_type: StringEnum(['Bearer']),
    public_key: Type.String(),
    project_id: Type.String(),
    role: StringEnum(ROLES),
    expires_at: Type.Union([dateTime('the key is refused from then on'), Type.Null()]),
  }),
);
export type LoginKey = Type.Static<typeof LoginKeySchema>;

export const UserCodeBody = Named('UserCode', Type.Object({ user_code: userCode }, closed));

export const LoginRequestSchema = Named(
  'LoginRequest',
  Type.Object({
    user_code: Type.String(),
    client_name: Type.String({
      description: 'the name that the program gives; nobody has checked it',
    }),
    address: Type.String({ description: 'where the request came from' }),
    created: dateTime('when the program asked'),
    expires_at: dateTime('until then it can be approved'),
  }),
);
export type LoginRequest = Type.Static<typeof LoginRequestSchema>;

export const ApproveLoginBody = Named(
  'ApproveLogin',
  Type.Object(
    {
      user_code: userCode,
      role: StringEnum(ROLES, { description: 'of the key that the program gets' }),
      expires_at: Type.Optional(dateTime('when the key expires; absent: never')),
    },
    closed,
  ),
);
export type ApproveLoginBody = Type.Static<typeof ApproveLoginBody>;

// Schemas of projects and their limits.

export const ProjectSchema = Named(
  'Project',
  Type.Object({ id: Type.String(), name: Type.String() }),
);

export const ProjectLimitsSchema = Named(
  'ProjectLimits',
  Type.Object(
    {
      services: limit('services, including paused ones'),
      replica_sets: limit('read replica sets'),
      cpu_millis: limit('thousandths of a core of all services and their replicas together'),
      memory_gbs: limit('gigabytes of all services and their replicas together'),
      backup_retention_days: Type.Optional(
        Type.Union(
          [Type.Integer({ minimum: RETENTION_DAYS.min, maximum: RETENTION_DAYS.max }), Type.Null()],
          {
            description:
              'the longest backup retention of its own that a service may get, in days; services ' +
              `that have one keep it; null: ${RETENTION_DAYS.max}`,
          },
        ),
      ),
    },
    { ...closed, description: 'missing fields stay unchanged' },
  ),
);

export type ProjectLimits = Type.Static<typeof ProjectLimitsSchema>;

export const ProjectDetailsSchema = Named(
  'ProjectDetails',
  Type.Object({
    id: Type.String(),
    name: Type.String(),
    created: dateTime('when it was made'),
    operator: Type.Boolean({
      description: 'whether its admin keys manage projects and their limits',
    }),
    limits: Ref(ProjectLimitsSchema),
    used: Type.Object(
      {
        services: count('services'),
        replica_sets: count('read replica sets'),
        cpu_millis: count('thousandths of a core, which are guaranteed'),
        memory_gbs: count('gigabytes'),
      },
      { description: 'the sizes of its services and their replicas together' },
    ),
    in_use: Type.Object(
      {
        cpu_millis: count('thousandths of a core'),
        cpu_beyond_millis: count('what of it is beyond the guarantees of the services'),
      },
      { description: 'of primaries and nodes of read replica sets, in the last minute' },
    ),
  }),
);

export type ProjectDetails = Type.Static<typeof ProjectDetailsSchema>;

export const CreateProjectBody = Named(
  'CreateProject',
  Type.Object({
    name: name('1 to 128 characters'),
    limits: Type.Optional(Ref(ProjectLimitsSchema)),
  }),
);

export type CreateProjectBody = Type.Static<typeof CreateProjectBody>;

export const RenameProjectBody = Named(
  'RenameProject',
  Type.Object({ name: name('1 to 128 characters') }),
);
