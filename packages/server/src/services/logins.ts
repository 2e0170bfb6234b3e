/**
 * Logins of programs: a program asks for a key, a person approves it in the web console, and the
 * program collects the key, once. The key is made when it is collected.
 */
import { randomBytes, randomInt } from 'node:crypto';
import {
  ApiError,
  inQuotes,
  USER_CODE_LETTERS,
  type ApproveLoginBody,
  type CollectLoginBody,
  type LoginKey,
  type LoginRequest,
  type StartLoginBody,
} from '@howdah/contract';
import { isSecret, sha256 } from '../lib/secret.ts';
import { insertAuditEntries, type AuditFacts } from '../store/audit-log.ts';
import type { Store } from '../store/database.ts';
import { findApprover } from '../store/keys.ts';
import {
  answerLogin,
  findWaitingLogin,
  insertLogin,
  takeLogin,
  type Approval,
  type LoginRow,
} from '../store/logins.ts';
import type { Db, Tx } from '../store/tables.ts';
import { makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { addKey, futureMoment } from './keys.ts';

const LIFETIME_SECONDS = 600;
const INTERVAL_SECONDS = 5;

const hashOf = (code: string): string => sha256(code).toString('hex');

/** Two groups of four letters: 2.5e10 codes, of which at most a thousand wait. */
function newUserCode(): string {
  const letter = (): string => USER_CODE_LETTERS[randomInt(USER_CODE_LETTERS.length)] ?? '';
  const group = (): string => Array.from({ length: 4 }, letter).join('');
  return `${group()}-${group()}`;
}

/** The code as it is stored, of one that a person typed. */
const codeAsStored = (typed: string): string =>
  typed
    .toUpperCase()
    .replace('-', '')
    .replace(/^(.{4})/, '$1-');

/** Begins a login. @param address of the program @throws ApiError */
export async function startLogin(
  store: Store,
  { client_name, redirect_uri, code_challenge }: StartLoginBody,
  address: string,
) {
  if ((redirect_uri === undefined) !== (code_challenge === undefined))
    throw new ApiError(
      'INVALID_REQUEST',
      'redirect_uri, code_challenge: found one of them; send both, or neither',
    );
  const browser =
    redirect_uri === undefined || code_challenge === undefined
      ? null
      : { redirectUri: redirect_uri, challenge: code_challenge };
  const deviceCode = randomBytes(32).toString('base64url');
  const userCode = newUserCode();
  const isStored = await insertLogin(store.db, {
    codeHash: hashOf(deviceCode),
    userCode,
    clientName: client_name,
    address,
    browser,
    lifetimeMs: LIFETIME_SECONDS * 1000,
  });
  if (!isStored)
    throw new ApiError(
      'RATE_LIMITED',
      'logins: too many wait for a person; try again in ten minutes, or use a key ' +
        '(howdah key create)',
    );
  return {
    device_code: deviceCode,
    user_code: userCode,
    expires_in: LIFETIME_SECONDS,
    interval: INTERVAL_SECONDS,
  };
}

/** @throws ApiError NOT_FOUND */
export async function findLogin(db: Db, typed: string): Promise<LoginRequest> {
  const found = await findWaitingLogin(db, codeAsStored(typed));
  if (found === null) throw loginNotFound(typed);
  return found;
}

const loginNotFound = (typed: string): ApiError =>
  new ApiError(
    'NOT_FOUND',
    `user_code: no login waits with the code ${inQuotes(typed)}: it was answered, its ten ` +
      'minutes are over, or it is another code; compare it with the program, or begin the login ' +
      'again there',
  );

/** Approves a login: its program gets a key of the caller's project. */
export function approveLogin(
  { store }: ControlContext,
  caller: Caller,
  { user_code, role, expires_at }: ApproveLoginBody,
): Promise<Outcome> {
  const keyExpiresAt = expires_at === undefined ? null : futureMoment(expires_at);
  return answerOnce(store, caller, user_code, { role, keyExpiresAt });
}

/** Denies a login: its program gets no key. */
export function denyLogin(
  { store }: ControlContext,
  caller: Caller,
  { user_code }: { user_code: string },
): Promise<Outcome> {
  return answerOnce(store, caller, user_code, null);
}

function answerOnce(
  store: Store,
  caller: Caller,
  typed: string,
  approval: Approval,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    if (!(await answerLogin(tx, codeAsStored(typed), caller.publicKey, approval)))
      throw loginNotFound(typed);
    const message =
      approval === null
        ? 'the login is denied; its program gets no key'
        : 'the login is approved; its program collects a key with the role ' +
          `${approval.role} within ten minutes`;
    return { operationId: null, message };
  });
}

/** The state of a login that gives its program no key, in the words of RFC 8628. */
export type Refusal = 'authorization_pending' | 'access_denied' | 'expired_token';

/** The parts of an audit entry that the request knows. */
export type CollectCall = Pick<AuditFacts, 'address' | 'method' | 'path' | 'request_id'>;

/**
 * Gives a program the key of its approved login, once.
 *
 * @param redirectUri as the program repeats it; undefined: it does not
 */
export async function collectLogin(
  { store }: Pick<ControlContext, 'store'>,
  { device_code, code_verifier }: CollectLoginBody,
  call: CollectCall,
  redirectUri?: string,
): Promise<LoginKey | Refusal> {
  // A refusal commits too: a code that was used with a wrong verifier is used up.
  return store.db.transaction().execute(async (tx) => {
    const { waits, login } = await takeLogin(tx, hashOf(device_code));
    if (waits) return 'authorization_pending';
    if (login === null) return 'expired_token';
    const { answered_by: by, role } = login;
    if (login.approved !== true || by === null || role === null) return 'access_denied';
    if (!isSameProgram(login, code_verifier, redirectUri)) return 'expired_token';
    return makeKey(tx, login, { by, role }, call);
  });
}

/** Whether the one that collects is the program whose browser was sent to the console. */
function isSameProgram(
  { code_challenge: challenge, redirect_uri: expected }: LoginRow,
  verifier: string | undefined,
  redirectUri: string | undefined,
): boolean {
  if (challenge === null) return verifier === undefined && redirectUri === undefined;
  return (
    verifier !== undefined &&
    isSecret(verifier, Buffer.from(challenge, 'base64url')) &&
    (redirectUri === undefined || redirectUri === expected)
  );
}

async function makeKey(
  tx: Tx,
  login: LoginRow,
  { by, role }: { by: string; role: LoginKey['role'] },
  call: CollectCall,
): Promise<LoginKey | Refusal> {
  // A key that has ended since gives nothing away any more.
  const projectId = await findApprover(tx, by);
  if (projectId === null) return 'access_denied';
  const expiresAt = login.key_expires_at;
  const key = await addKey(tx, projectId, {
    name: login.client_name,
    role,
    createdBy: by,
    ...(expiresAt === null ? {} : { expiresAt }),
  });
  await insertAuditEntries(tx, [
    {
      ...call,
      project_id: projectId,
      public_key: by,
      call: 'collectDeviceLogin',
      service_id: null,
      operation_id: null,
      status: 200,
      code: null,
    },
  ]);
  return {
    access_token: `${key.public_key}:${key.secret_key}`,
    token_type: 'Bearer',
    public_key: key.public_key,
    project_id: projectId,
    role,
    expires_at: key.expires_at,
  };
}
