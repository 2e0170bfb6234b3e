/** Names in place of ids, for tables that people read. They are looked up once. */
import { HowdahError, type Schemas } from '@howdah/client';
import type { Connection } from './connection.ts';
import {
  ALLOW_LISTS,
  DELETED_SERVICES,
  EXPORTERS,
  keysOf,
  listServices,
  VPCS,
  type ListedKind,
} from './find.ts';
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
  return namesOf(connection, format, keysOf(connection.projectId));
}

/** The names of the VPCs of the project. */
export async function vpcNames(connection: Connection, format: Format): Promise<NameOf> {
  return namesOf(connection, format, VPCS);
}

/**
 * The names of peerings: that of the other VPC. The names of other projects are unknown, so that
 * there it is `PROJECT/VPC`, by their ids.
 */
export async function peerNames(
  connection: Connection,
  format: Format,
): Promise<(peering: Schemas['Peering']) => string> {
  const vpcName = await vpcNames(connection, format);
  return ({ peer_account_id: project, peer_vpc_id: vpc }) => {
    const name = project === connection.projectId ? vpcName(vpc) : vpc;
    return name === vpc ? `${project}/${vpc}` : name;
  };
}

/** The names of what a service refers to. */
export type NamesOfService = {
  readonly serviceName: NameOf;
  readonly vpcName: NameOf;
  readonly listName: NameOf;
  readonly exporterName: NameOf;
};

export const UNNAMED: NamesOfService = {
  serviceName: noNames,
  vpcName: noNames,
  listName: noNames,
  exporterName: noNames,
};

/** Only what the service refers to is looked up. */
export async function namesOfService(
  connection: Connection,
  format: Format,
  service: Schemas['Service'],
): Promise<NamesOfService> {
  const isNamed = (id: unknown): boolean => id !== undefined && id !== null;
  const where = (id: unknown, names: () => Promise<NameOf>): Promise<NameOf> | NameOf =>
    isNamed(id) ? names() : noNames;
  const [serviceName, vpcName, listName, exporterName] = await Promise.all([
    where(service.forked_from, () => serviceNames(connection, format)),
    where(service.vpc_endpoint, () => vpcNames(connection, format)),
    where(service.allow_list_id, () => namesOf(connection, format, ALLOW_LISTS)),
    where(service.metric_exporter_id, () => namesOf(connection, format, EXPORTERS)),
  ]);
  return { serviceName, vpcName, listName, exporterName };
}

/** The names of things of a kind, if the key in use may list them. */
async function namesOf<T>(
  connection: Connection,
  format: Format,
  { list, id, name }: ListedKind<T>,
): Promise<NameOf> {
  if (format !== 'table') return noNames;
  try {
    return lookup((await list(connection)).map((thing) => [id(thing), name(thing)]));
  } catch (error) {
    if (error instanceof HowdahError && error.code === 'FORBIDDEN') return noNames;
    throw error;
  }
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
