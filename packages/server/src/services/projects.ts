/** What can be asked of projects and their keys. */
import { randomBytes } from 'node:crypto';
import {
  ApiError,
  ENDED_KEYS_KEPT_DAYS,
  MAX_KEYS,
  MAX_PROJECTS,
  type CreateKeyBody,
  type CreateProjectBody,
  type Key,
  type ProjectDetails,
  type ProjectLimits,
} from '@howdah/contract';
import { newId } from '../lib/ids.ts';
import { sha256 } from '../lib/secret.ts';
import type { Store } from '../store/database.ts';
import type { Tx } from '../store/tables.ts';
import {
  countKeys,
  findKey,
  hasAnotherAdminKey,
  insertKey,
  listKeys,
  revokeKey,
} from '../store/keys.ts';
import {
  changeProject,
  countProjects,
  findProject,
  insertProject,
  listProjects,
  lockLimits,
} from '../store/projects.ts';
import { makeChange, type Caller, type Outcome } from './change.ts';

export function createProjects(store: Store) {
  const create = (caller: Caller, { name, limits = {} }: CreateProjectBody): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      // Of two who make the last one, one comes second.
      await lockLimits(tx, caller.projectId);
      if ((await countProjects(tx, MAX_PROJECTS)) >= MAX_PROJECTS)
        throw new ApiError(
          'LIMIT_EXCEEDED',
          `projects: there are ${MAX_PROJECTS}, the most that an installation can have; use one of them`,
        );
      const id = newId();
      await insertProject(tx, { id, name, limits });
      return told(await details(tx, id));
    });

  const change = (
    caller: Caller,
    projectId: string,
    changed: { name?: string; limits?: ProjectLimits },
  ): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      await details(tx, projectId);
      await changeProject(tx, projectId, changed);
      return told(await details(tx, projectId));
    });

  const details = async (tx: Tx | Store['db'], projectId: string): Promise<ProjectDetails> => {
    const found = await findProject(tx, projectId);
    if (found === null) throw projectNotFound(projectId);
    return found;
  };

  const createKey = (caller: Caller, projectId: string, body: CreateKeyBody): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      await details(tx, projectId);
      await lockLimits(tx, projectId);
      if ((await countKeys(tx, projectId, MAX_KEYS)) >= MAX_KEYS)
        throw new ApiError(
          'LIMIT_EXCEEDED',
          `keys: the project has ${MAX_KEYS}, the most that are allowed; those that were revoked or have expired count for ${ENDED_KEYS_KEPT_DAYS} days: revoke keys that are not needed, or use one that there is`,
        );
      const secret = newSecret();
      const key = await insertKey(tx, {
        publicKey: newPublicKey(),
        secretHash: sha256(secret),
        projectId,
        name: body.name,
        role: body.role,
        createdBy: caller.publicKey,
        ...(body.expires_at === undefined ? {} : { expiresAt: futureMoment(body.expires_at) }),
        dryRunOnly: body.dry_run_only ?? false,
        forkOnly: body.fork_only ?? false,
      });
      return told({ ...key, secret_key: secret });
    });

  const revoke = (caller: Caller, projectId: string, publicKey: string): Promise<Outcome> =>
    makeChange(store, caller, async (tx) => {
      const key = await keyOf(tx, projectId, publicKey);
      // Of two who revoke each other's key, one comes second.
      await lockLimits(tx, projectId);
      if (
        key.role === 'admin' &&
        key.revoked_at === null &&
        !(await hasAnotherAdminKey(tx, projectId, publicKey))
      ) {
        throw new ApiError(
          'CONFLICT',
          `${publicKey} is the last admin key of the project that does not expire; make another one first: howdah key create --role admin`,
        );
      }
      await revokeKey(tx, publicKey);
      return { operationId: null };
    });

  const keyOf = async (
    tx: Tx | Store['db'],
    projectId: string,
    publicKey: string,
  ): Promise<Key> => {
    const found = /^[A-Za-z0-9_-]{1,64}$/.test(publicKey)
      ? await findKey(tx, projectId, publicKey)
      : null;
    if (found === null)
      throw new ApiError(
        'NOT_FOUND',
        `no key with that public half exists: ${JSON.stringify(publicKey.slice(0, 64))}; GET /projects/{project_id}/keys lists them`,
      );
    return found;
  };

  return {
    create,
    change,
    list: () => listProjects(store.db),
    get: (projectId: string) => details(store.db, projectId),
    createKey,
    revoke,
    listKeys: async (projectId: string): Promise<Key[]> => {
      await details(store.db, projectId);
      return listKeys(store.db, projectId);
    },
    getKey: (projectId: string, publicKey: string) => keyOf(store.db, projectId, publicKey),
  };
}
export type Projects = ReturnType<typeof createProjects>;

/** The answer to an operator for a project that is not there. */
export function projectNotFound(id: string): ApiError {
  return new ApiError(
    'NOT_FOUND',
    `no project with that id exists: ${JSON.stringify(id.slice(0, 64))}; howdah project list shows them`,
  );
}

const told = (body: object): Outcome => ({ operationId: null, doc: JSON.stringify(body) });

/** The public half of a new key: not secret, and long enough that no two are alike. */
export function newPublicKey(): string {
  return `HD${newId()}${newId()}`;
}

/** The secret half of a new key: 256 random bits. */
export function newSecret(): string {
  return randomBytes(32).toString('base64url');
}

function futureMoment(text: string): Date {
  const at = new Date(text);
  if (!(at.getTime() > Date.now()))
    throw new ApiError(
      'INVALID_REQUEST',
      `expires_at: found ${text}; allowed: a moment in the future`,
    );
  return at;
}
