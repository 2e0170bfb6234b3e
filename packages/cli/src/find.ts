/** Finds things by id or name, as arguments of commands name them. */
import { HowdahError, type Schemas } from '@howdah/client';
import { isId } from '@howdah/contract/ids';
import { quotedWord } from '@howdah/contract/shell';
import { answered, type Connection } from './connection.ts';
import { Failure } from './exit.ts';
import { nearestOf } from './nearest.ts';

/** A kind of thing that has an id and, in most cases, a name. */
type Kind<T> = {
  one: string;
  many: string;
  /** The command that lists them. */
  shownBy: string;
  id: (thing: T) => string;
  name: (thing: T) => string;
};

/** A kind of thing that one call lists: there are few. */
export type ListedKind<T> = Kind<T> & { list: (connection: Connection) => Promise<T[]> };

/**
 * The thing with this id, or the only one with this name.
 *
 * @throws Failure notFound, or usage with the ids of the things that share the name
 */
export function pick<T>(
  things: readonly T[],
  wanted: string,
  { one, many, shownBy, id, name }: Kind<T>,
): T {
  const byId = things.filter((thing) => id(thing) === wanted);
  const found = byId.length > 0 ? byId : things.filter((thing) => name(thing) === wanted);
  const [first, second] = found;
  if (first === undefined) {
    const nearest = nearestOf(wanted, things.map(name));
    const offer = nearest === null ? '' : `; did you mean ${nearest}?`;
    const missing = `no ${one} with the id or name ${wanted}${offer}`;
    throw new Failure(`${missing}${offer === '' ? ';' : ''} ${shownBy} shows them`, 'notFound');
  }
  if (second !== undefined)
    throw new Failure(
      `${found.length} ${many} are called ${wanted}: ` +
        `name one by its id (${found.map(id).join(', ')})`,
      'usage',
    );
  return first;
}

/** The thing with this id, or the only one with this name. @throws Failure as {@link pick} */
export async function find<T>(
  connection: Connection,
  kind: ListedKind<T>,
  wanted: string,
): Promise<T> {
  return pick(await kind.list(connection), wanted, kind);
}

/**
 * The service with this id, or the only one with this name. A read replica set is found by its id.
 */
export async function findService(
  connection: Connection,
  wanted: string,
): Promise<Schemas['Service']> {
  const byId = isId(wanted) ? await readOrNull(readService(connection, wanted)) : null;
  if (byId !== null) return byId;
  return pick(await listServices(connection), wanted, {
    one: 'service',
    many: 'services',
    shownBy: 'howdah service list',
    id: (service) => service.service_id,
    name: (service) => service.name,
  });
}

export async function readService(connection: Connection, id: string): Promise<Schemas['Service']> {
  return answered(
    connection.client.GET('/projects/{project_id}/services/{service_id}', {
      params: pathOf(connection, id),
    }),
  );
}

export async function listServices(connection: Connection): Promise<Schemas['Service'][]> {
  return answered(connection.client.GET('/projects/{project_id}/services', inProject(connection)));
}

export const VPCS: ListedKind<Schemas['Vpc']> = {
  one: 'VPC',
  many: 'VPCs',
  shownBy: 'howdah vpc list',
  id: (vpc) => vpc.id,
  name: (vpc) => vpc.name,
  list: async (connection) =>
    answered(connection.client.GET('/projects/{project_id}/vpcs', inProject(connection))),
};

export const DELETED_SERVICES: ListedKind<Schemas['DeletedService']> = {
  one: 'deleted service',
  many: 'deleted services',
  shownBy: 'howdah service list-deleted',
  id: (service) => service.service_id,
  name: (service) => service.name,
  list: async (connection) =>
    answered(
      connection.client.GET('/projects/{project_id}/deletedServices', inProject(connection)),
    ),
};

/** The path of a read replica set, by the ids or names of its service and of itself. */
export async function findSet(connection: Connection, service: string, wanted: string) {
  const { params } = await findPath(connection, service);
  const sets = await answered(
    connection.client.GET('/projects/{project_id}/services/{service_id}/replicaSets', { params }),
  );
  const { id } = pick(sets, wanted, {
    one: `read replica set of ${service}`,
    many: 'read replica sets',
    shownBy: `howdah replica-set list ${service}`,
    id: (set) => set.id,
    name: (set) => set.name,
  });
  return { params: { path: { ...params.path, replica_set_id: id } } };
}

/** The id of the service with this id or name. With an id, the service may be deleted. */
export async function findServiceId(connection: Connection, wanted: string): Promise<string> {
  try {
    return (await findService(connection, wanted)).service_id;
  } catch (error) {
    const isMissing = error instanceof Failure && error.exit === 'notFound';
    if (isMissing && isId(wanted)) return wanted;
    throw error;
  }
}

/** The path of the calls on a service. */
export async function findPath(connection: Connection, wanted: string) {
  return { params: pathOf(connection, (await findService(connection, wanted)).service_id) };
}

/** The VPC with this id, or the only one with this name. */
export async function findVpc(connection: Connection, wanted: string): Promise<Schemas['Vpc']> {
  const byId = /^[0-9]+$/.test(wanted) ? await readOrNull(readVpc(connection, wanted)) : null;
  return byId ?? find(connection, VPCS, wanted);
}

export async function readVpc(connection: Connection, id: string): Promise<Schemas['Vpc']> {
  return answered(
    connection.client.GET('/projects/{project_id}/vpcs/{vpc_id}', {
      params: pathOfVpc(connection, id),
    }),
  );
}

/** An allow list has a description in place of a name. */
export const ALLOW_LISTS: ListedKind<Schemas['AllowList']> = {
  one: 'allow list',
  many: 'allow lists',
  shownBy: 'howdah allow-list list',
  id: (list) => list.allow_list_id,
  name: (list) => list.description,
  list: async (connection) =>
    answered(connection.client.GET('/projects/{project_id}/allow-lists', inProject(connection))),
};

export const EXPORTERS: ListedKind<Schemas['Exporter']> = {
  one: 'exporter',
  many: 'exporters',
  shownBy: 'howdah exporter list',
  id: (exporter) => exporter.exporter_id,
  name: (exporter) => exporter.name,
  list: async (connection) =>
    answered(connection.client.GET('/projects/{project_id}/exporters', inProject(connection))),
};

export const DESTINATIONS: ListedKind<Schemas['AlertDestination']> = {
  one: 'destination',
  many: 'destinations',
  shownBy: 'howdah alert destination list',
  id: (destination) => destination.id,
  name: (destination) => destination.name,
  list: async (connection) =>
    answered(
      connection.client.GET('/projects/{project_id}/alerts/destinations', inProject(connection)),
    ),
};

/** A webhook has a URL in place of a name. */
export const WEBHOOKS: ListedKind<Schemas['Webhook']> = {
  one: 'webhook',
  many: 'webhooks',
  shownBy: 'howdah webhook list',
  id: (webhook) => webhook.id,
  name: (webhook) => webhook.url,
  list: async (connection) =>
    answered(connection.client.GET('/projects/{project_id}/webhooks', inProject(connection))),
};

/** The keys of a project. The id of a key is its public half. */
export const keysOf = (projectId: string): ListedKind<Schemas['Key']> => ({
  one: 'key',
  many: 'keys',
  shownBy: 'howdah key list',
  id: (key) => key.public_key,
  name: (key) => key.name,
  list: async ({ client }) => {
    const params = { path: { project_id: projectId } };
    return answered(client.GET('/projects/{project_id}/keys', { params }));
  },
});

/** The peerings of a VPC. The name of a peering is that of the other VPC. */
export const peeringsOf = (
  vpc: string,
  path: ReturnType<typeof pathOfVpc>['path'],
  peerName: (peering: Schemas['Peering']) => string,
): ListedKind<Schemas['Peering']> => ({
  one: `peering of ${vpc}`,
  many: `peerings of ${vpc}`,
  shownBy: `howdah peering list ${quotedWord(vpc)}`,
  id: (peering) => peering.id,
  name: peerName,
  list: async ({ client }) =>
    answered(client.GET('/projects/{project_id}/vpcs/{vpc_id}/peerings', { params: { path } })),
});

/**
 * The id of the project with this id or name; default: the key's own project. Only operator keys
 * find others.
 */
export async function findProject(
  connection: Connection,
  wanted: string | undefined,
): Promise<string> {
  if (wanted === undefined || wanted === connection.projectId) return connection.projectId;
  const projects = await answered(
    connection.client.GET('/projects', { params: { query: { all: 'true' } } }),
  );
  const found = pick(projects, wanted, {
    one: 'project',
    many: 'projects',
    shownBy: 'howdah project list',
    id: (project) => project.id,
    name: (project) => project.name,
  });
  return found.id;
}

const inProject = (connection: Connection) => ({ params: ofProject(connection) });

export function ofProject(connection: Connection) {
  return { path: { project_id: connection.projectId } };
}

export function pathOf(connection: Connection, serviceId: string) {
  return { path: { project_id: connection.projectId, service_id: serviceId } };
}

export function pathOfVpc(connection: Connection, vpcId: string) {
  return { path: { project_id: connection.projectId, vpc_id: vpcId } };
}

async function readOrNull<T>(read: Promise<T>): Promise<T | null> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof HowdahError && error.code === 'NOT_FOUND') return null;
    throw error;
  }
}
