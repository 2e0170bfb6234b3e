/** Changes and reads of the API keys of a project. */
import { randomBytes } from 'node:crypto';
import {
  ApiError,
  ENDED_KEYS_KEPT_DAYS,
  MAX_KEYS,
  type CreateKeyBody,
  type Key,
} from '@howdah/contract';
import type { KeyBounds } from '../domain/service/lifetime.ts';
import { newId } from '../lib/ids.ts';
import { sha256 } from '../lib/secret.ts';
import {
  countKeys,
  findKey,
  hasAnotherAdminKey,
  insertKey,
  listKeys,
  revokeKey,
  type NewKey,
} from '../store/keys.ts';
import { lockLimits } from '../store/projects.ts';
import type { Db, Tx } from '../store/tables.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { readProject } from './projects.ts';

/** Creates a key. Its secret half is in this answer only. */
export function createKey(
  { store }: ControlContext,
  caller: Caller,
  projectId: string,
  body: CreateKeyBody,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    await readProject(tx, projectId);
    const made = await addKey(tx, projectId, {
      name: body.name,
      role: body.role,
      createdBy: caller.publicKey,
      ...(body.expires_at === undefined ? {} : { expiresAt: futureMoment(body.expires_at) }),
      dryRunOnly: body.dry_run_only ?? false,
      forkOnly: body.fork_only ?? false,
      bounds: boundsOrRefuse(body),
    });
    return answerWith(made);
  });
}

/**
 * What a key sets to the services that it makes.
 *
 * @throws ApiError INVALID_REQUEST for an admin key, which could make one without bounds
 */
function boundsOrRefuse(body: CreateKeyBody): KeyBounds {
  const bounds = {
    serviceTtlSeconds: body.service_ttl_seconds ?? null,
    maxTtlSeconds: body.max_service_ttl_seconds ?? null,
    autoSuspendSeconds: body.service_auto_suspend_seconds ?? null,
    maxServices: body.max_services ?? null,
  };
  const { serviceTtlSeconds: ttl, maxTtlSeconds: most, maxServices } = bounds;
  if (ttl !== null && most !== null && ttl > most)
    throw new ApiError(
      'INVALID_REQUEST',
      `service_ttl_seconds: found ${ttl}, which is more than max_service_ttl_seconds, ${most}`,
    );
  const isBound = most !== null || maxServices !== null;
  if (isBound && body.role === 'admin' && body.fork_only !== true)
    throw new ApiError(
      'INVALID_REQUEST',
      'max_service_ttl_seconds, max_services: found for an admin key, which can make keys ' +
        'without them; give it another role, or fork_only',
    );
  return bounds;
}

/**
 * Adds a key to a project. Its secret is in the result only.
 *
 * @throws ApiError LIMIT_EXCEEDED
 */
export async function addKey(
  tx: Tx,
  projectId: string,
  key: Omit<NewKey, 'publicKey' | 'secretHash' | 'projectId'>,
): Promise<Key & { secret_key: string }> {
  await lockLimits(tx, projectId);
  if ((await countKeys(tx, projectId, MAX_KEYS)) >= MAX_KEYS)
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `keys: the project has ${MAX_KEYS}, the most that are allowed; those that were revoked or ` +
        `have expired count for ${ENDED_KEYS_KEPT_DAYS} days: ` +
        'revoke keys that are not needed, or ' +
        'use one that there is',
    );
  const secret = newSecret();
  const made = await insertKey(tx, {
    ...key,
    publicKey: newPublicKey(),
    secretHash: sha256(secret),
    projectId,
  });
  return { ...made, secret_key: secret };
}

/** Revokes a key, unless it is the last admin key that does not expire. */
export function revokeProjectKey(
  { store }: ControlContext,
  caller: Caller,
  projectId: string,
  publicKey: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const key = await readKey(tx, projectId, publicKey);
    // The lock orders two keys that revoke each other: the second finds no other admin key.
    await lockLimits(tx, projectId);
    if (
      key.role === 'admin' &&
      key.revoked_at === null &&
      !(await hasAnotherAdminKey(tx, projectId, publicKey))
    ) {
      throw new ApiError(
        'CONFLICT',
        `${publicKey} is the last admin key of the project that does not expire; make another ` +
          'one first: howdah key create --role admin',
      );
    }
    await revokeKey(tx, publicKey);
    return { operationId: null };
  });
}

export async function listProjectKeys(db: Db, projectId: string): Promise<Key[]> {
  await readProject(db, projectId);
  return listKeys(db, projectId);
}

/** @throws ApiError NOT_FOUND */
export async function readKey(db: Db, projectId: string, publicKey: string): Promise<Key> {
  const found = /^[A-Za-z0-9_-]{1,64}$/.test(publicKey)
    ? await findKey(db, projectId, publicKey)
    : null;
  if (found === null)
    throw new ApiError(
      'NOT_FOUND',
      `no key with that public half exists: ${JSON.stringify(publicKey.slice(0, 64))}; ` +
        'GET /projects/{project_id}/keys lists them',
    );
  return found;
}

/** The public half of a new key: not secret, and long enough that no two are alike. */
export function newPublicKey(): string {
  return `HD${newId()}${newId()}`;
}

/** The secret half of a new key: 256 random bits. */
export function newSecret(): string {
  return randomBytes(32).toString('base64url');
}

/** @throws ApiError INVALID_REQUEST */
export function futureMoment(text: string): Date {
  const at = new Date(text);
  if (!(at.getTime() > Date.now()))
    throw new ApiError(
      'INVALID_REQUEST',
      `expires_at: found ${text}; allowed: a moment in the future`,
    );
  return at;
}
