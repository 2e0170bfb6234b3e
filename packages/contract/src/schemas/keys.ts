/** Schemas of keys, sessions and links. */
import { Type } from 'typebox';
import { Named, oldSpelling, Ref, StringEnum } from '../schema.ts';
import { closed, dateTime, name } from './parts.ts';
import { ROLES } from '../types.ts';

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
