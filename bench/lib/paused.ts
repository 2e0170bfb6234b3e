/**
 * Thousands of paused services: rows as the control plane would have written them, copied from one
 * that it made.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Client } from 'pg';
import { newId } from '../../packages/server/src/lib/ids.ts';
import { ask, create, openMetadata, untilStatus, type Cloud } from './cloud.ts';

export type Fleet = {
  ids: string[];
  /** A key for the project that they are in. */
  key: string;
  projectId: string;
  metadata: Client;
  /** Removes them from the metadata database. */
  remove: () => Promise<void>;
};

/** Far above real ports, with which they would collide in the unique index. */
const FIRST_PORT = 1_000_000;

/** Inserts paused services in a project of their own. */
export async function insertPaused(cloud: Cloud, count: number): Promise<Fleet> {
  const model = await create(cloud);
  await ask(cloud, 'POST', `/services/${model.id}/stop`);
  await untilStatus(cloud, model.id, 'PAUSED');
  const metadata = await openMetadata(cloud);
  const ids = Array.from({ length: count }, newId);
  const projectId = newId();
  const [publicKey, secretKey] = [`HD${newId()}${newId()}`, randomBytes(32).toString('base64url')];
  await metadata.query(`insert into projects (id, name) values ($1, 'bench')`, [projectId]);
  await metadata.query(
    `insert into api_keys (public_key, project_id, name, role, secret_hash)
       values ($1, $2, 'bench', 'admin', $3)`,
    [publicKey, projectId, createHash('sha256').update(secretKey).digest()],
  );
  const { rows } = await metadata.query<{ column_name: string }>(
    `select column_name from information_schema.columns where table_name = 'services'
       and table_schema = 'public' and is_generated = 'NEVER'`,
  );
  const columns = rows.map(({ column_name }) => column_name);
  await metadata.query(
    `insert into services (${columns.join(', ')})
     select ${columns.map(copied).join(', ')}
       from services s, unnest($3::text[]) with ordinality as fresh (id, number) where s.id = $1`,
    [model.id, projectId, ids],
  );
  await metadata.query('vacuum analyze services');
  const remove = async (): Promise<void> => {
    await metadata.query('delete from services where project_id = $1', [projectId]);
    await metadata.query('delete from api_keys where project_id = $1', [projectId]);
    await metadata.query('delete from projects where id = $1', [projectId]);
    await metadata.end();
  };
  return { ids, key: `${publicKey}:${secretKey}`, projectId, metadata, remove };
}

/** The value of a column of a copy: `s` is the service that it was copied from, $2 the project. */
function copied(column: string): string {
  switch (column) {
    case 'id':
      return 'fresh.id';
    case 'project_id':
      return '$2';
    case 'port':
      return `${FIRST_PORT} + (fresh.number)::int`;
    case 'name':
      return `'paused ' || fresh.number`;
    case 'doc':
      return (
        `replace(replace(replace(doc, '"' || s.id || '"', '"' || fresh.id || '"'), ` +
        `s.project_id, $2), '"name":"' || s.name || '"', ` +
        `'"name":"paused ' || fresh.number || '"')`
      );
    default:
      return `s.${column}`;
  }
}
