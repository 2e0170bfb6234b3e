/**
 * What a base backup does not have, in the files of a server that is stopped: nobody can add to it
 * any more. The names of files are input.
 */
import { join } from 'node:path';
import { entryExists, listEntries, readBytes } from '../host/service-files.ts';

/** PostgreSQL keeps an empty copy of each unlogged table, sequence and index, the init fork. */
const INIT_FORK = /^\d+_init$/;
/** The database of a slot, behind the head of its file and its name; a physical slot has none. */
const SLOT_DATABASE_OFFSET = 16 + 64;
const SLOT_MAX_BYTES = 4096;

/** @returns what it has, in words; null: nothing */
export async function findUncopied(dataDirectory: string): Promise<string | null> {
  const base = join(dataDirectory, 'base');
  for (const database of await listEntries(base))
    if (/^\d+$/.test(database)) {
      const files = await listEntries(join(base, database));
      if (files.some((name) => INIT_FORK.test(name)))
        return 'it has got unlogged tables or sequences, whose rows a copy has not';
    }
  const slots = join(dataDirectory, 'pg_replslot');
  for (const slot of await listEntries(slots))
    if (await isLogical(join(slots, slot, 'state')))
      return 'it has got logical slots, which a copy has not';
  return null;
}

async function isLogical(path: string): Promise<boolean> {
  if (!entryExists(path)) return false;
  const state = await readBytes(path, SLOT_MAX_BYTES);
  return state.length >= SLOT_DATABASE_OFFSET + 4 && state.readUInt32LE(SLOT_DATABASE_OFFSET) !== 0;
}
