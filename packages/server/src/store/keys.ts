import type { Role } from '@howdah/contract';
import type { Pool } from 'pg';
import { coalesced } from './read.ts';
import type { Db } from './database.ts';

/** A key as the authentication sees it. */
export type KeyRow = {
  key: string;
  project_id: string;
  project_name: string;
  name: string;
  role: Role;
  secret_hash: Buffer;
  created: Date;
  last_used: Date | null;
  /** Neither revoked nor expired, by the database's clock. */
  valid: boolean;
};

/** Looks keys up by their public half. */
export function keyReader(pool: Pool): (publicKey: string) => Promise<KeyRow | null> {
  return coalesced<KeyRow>(
    pool,
    'keys',
    `select k.public_key as key, k.project_id, p.name as project_name, k.name, k.role, k.secret_hash, k.created, k.last_used,
            k.revoked_at is null and (k.expires_at is null or k.expires_at > now()) as valid
     from api_keys k join projects p on p.id = k.project_id
     where k.public_key = any($1)`,
  );
}

export async function insertKey(
  db: Db,
  key: { publicKey: string; secretHash: Buffer; projectId: string; name: string; role: Role; expiresAt?: Date },
): Promise<void> {
  await db
    .insertInto('api_keys')
    .values({
      public_key: key.publicKey,
      secret_hash: key.secretHash,
      project_id: key.projectId,
      name: key.name,
      role: key.role,
      expires_at: key.expiresAt ?? null,
      revoked_at: null,
      last_used: null,
    })
    .execute();
}

/** Notes that a key was used. */
export async function touchKey(db: Db, publicKey: string): Promise<void> {
  await db.updateTable('api_keys').set({ last_used: new Date() }).where('public_key', '=', publicKey).execute();
}

export async function insertProject(db: Db, project: { id: string; name: string }): Promise<void> {
  await db.insertInto('projects').values(project).execute();
}

export async function anyProject(db: Db): Promise<boolean> {
  return (await db.selectFrom('projects').select('id').limit(1).executeTakeFirst()) !== undefined;
}
