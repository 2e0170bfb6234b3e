/** Schemas of logins that a person approves in the web console for a program. */
import { Type } from 'typebox';
import { Named, StringEnum } from '../schema.ts';
import { LOOPBACK_PATTERN } from '../text.ts';
import { ROLES } from '../types.ts';
import { closed, dateTime, name } from './parts.ts';

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
