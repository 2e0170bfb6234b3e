/** Names in place of ids, for tables that people read. They are looked up once. */
import { HowdahError } from '@howdah/client';
import type { Connection } from './connection.ts';
import { DELETED_SERVICES, keysOf, listServices, listVpcs } from './find.ts';
import type { Format } from './output.ts';

/** The name of a thing with this id, or the id if the name is unknown. */
export type NameOf = (id: string) => string;

export const noNames: NameOf = (id) => id;

/** The names of services, including deleted ones. Formats for programs need none. */
export async function serviceNames(connection: Connection, format: Format): Promise<NameOf> {
  if (format !== 'table') return noNames;
  const [services, deleted] = await Promise.all([
    listServices(connection),
    DELETED_SERVICES.list(connection),
  ]);
  return lookup([...deleted, ...services].map(({ service_id: id, name }) => [id, name]));
}

/** The names of keys, if the key in use may list them. */
export async function keyNames(connection: Connection, format: Format): Promise<NameOf> {
  if (format !== 'table') return noNames;
  try {
    const keys = await keysOf(connection.projectId).list(connection);
    return lookup(keys.map(({ public_key: id, name }) => [id, name]));
  } catch (error) {
    if (error instanceof HowdahError && error.code === 'FORBIDDEN') return noNames;
    throw error;
  }
}

/** The names of the VPCs of the project. */
export async function vpcNames(connection: Connection, format: Format): Promise<NameOf> {
  if (format !== 'table') return noNames;
  const vpcs = await listVpcs(connection);
  return lookup(vpcs.map(({ id, name }) => [id, name]));
}

/** Names for a stream of events: an unknown id is looked up when it first appears. */
export function growingNames(
  connection: Connection,
  format: Format,
): (id: string) => Promise<string> {
  const asked = new Set<string>();
  let nameOf = noNames;
  return async (id) => {
    if (nameOf(id) === id && !asked.has(id)) {
      asked.add(id);
      nameOf = await serviceNames(connection, format);
    }
    return nameOf(id);
  };
}

function lookup(pairs: readonly (readonly [id: string, name: string])[]): NameOf {
  const names = new Map(pairs);
  return (id) => names.get(id) ?? id;
}
