/** The project of a key, and its services in the form that tools use. */
import {
  HowdahError,
  waitFor,
  WaitError,
  type HowdahClient,
  type Schemas,
  type Target,
} from '@howdah/client';
import { uriOf } from '@howdah/contract/connect';
import { simulationNote } from '@howdah/contract/simulated';
import { waitingNote } from '@howdah/contract/waits';
import { isId, refusalOfCall, type Environment, type Permission } from '@howdah/contract';
import { Problem } from './problem.ts';

export type Service = Schemas['Service'];

export type Cloud = {
  client: HowdahClient;
  /** The id of the key's project; read once. */
  projectId: () => Promise<string>;
};

export function openCloud(client: HowdahClient): Cloud {
  let known: string | undefined;
  return {
    client,
    projectId: async () => (known ??= body(await client.GET('/auth/info')).api_key.project.id),
  };
}

/** The body of an answer that has one. */
export function body<T>({ data }: { data?: T | undefined }): T {
  if (data === undefined) throw new Problem('the API answered without a body', 'try again');
  return data;
}

/** The path parameters of a service. */
export const pathOf = ({ project_id, service_id }: Pick<Service, 'project_id' | 'service_id'>) => ({
  project_id,
  service_id,
});

/** A service by its id or name; a read replica set by its id. */
export async function findService(
  { client, projectId }: Cloud,
  nameOrId: string,
): Promise<Service> {
  const project_id = await projectId();
  const services = body(
    await client.GET('/projects/{project_id}/services', { params: { path: { project_id } } }),
  );
  const named = services.filter(
    ({ name, service_id }) => service_id === nameOrId || name === nameOrId,
  );
  const [found, another] = named.toSorted(
    (a, b) => Number(b.service_id === nameOrId) - Number(a.service_id === nameOrId),
  );
  if (found !== undefined && (another === undefined || found.service_id === nameOrId)) return found;
  if (another !== undefined)
    throw new Problem(
      `${named.length} services are named ${JSON.stringify(nameOrId)}: ` +
        named.map(({ service_id }) => service_id).join(', '),
      'call again with the service_id of one of them; get_service shows each',
    );
  // The API explains an unknown id.
  if (isId(nameOrId))
    return body(
      await client.GET('/projects/{project_id}/services/{service_id}', {
        params: { path: { project_id, service_id: nameOrId } },
      }),
    );
  throw new Problem(
    `no service has the name or id ${JSON.stringify(nameOrId)}`,
    'list_services shows their names and ids',
  );
}

/** The most important fields of a service. */
export function describe(service: Service) {
  const {
    service_id,
    name,
    status,
    service_type,
    metadata,
    resources,
    endpoint,
    created,
    forked_from,
    metrics,
    ha_replicas,
    warnings,
  } = service;
  const size = resources[0]?.spec;
  const simulated = simulationNote(service);
  const waiting = waitingNote(service);
  return {
    service_id,
    name,
    status,
    service_type,
    environment: metadata.environment,
    endpoint: `${endpoint.host}:${endpoint.port}`,
    cpu_millis: size?.cpu_millis ?? 'shared',
    memory_gbs: size?.memory_gbs ?? 'shared',
    storage_gb: size?.storage_gb,
    created,
    replicas: ha_replicas.replica_count,
    uses: metrics,
    ...(waiting === null ? {} : { just_now: waiting }),
    ...(forked_from === undefined ? {} : { forked_from: forked_from.service_id }),
    ...(simulated === null ? {} : { note: simulated }),
    ...(warnings === undefined || warnings.length === 0 ? {} : { warnings }),
  };
}

/** The connection string with a password that was just set. */
export function connectionString({ endpoint }: Service, password: string): string {
  return uriOf({ ...endpoint, ca: null }, password);
}

/**
 * Refuses what the key may not do, before an agent asks its user to confirm it.
 *
 * @param of what the call would take away from its clients
 * @throws HowdahError FORBIDDEN, as the API throws it
 */
export async function refuseDenied(
  { client }: Cloud,
  permission: Permission,
  of: { environment?: Environment; createdBy?: string | undefined },
): Promise<void> {
  const { api_key: key } = body(await client.GET('/auth/info'));
  const refused = refusalOfCall(key, permission, of);
  if (refused !== null) throw new HowdahError(403, 'FORBIDDEN', refused, undefined);
}

/**
 * Waits until a service has its desired state, up to a limit.
 *
 * @returns the service; null: it is gone
 */
export async function settle(
  { client }: Cloud,
  service: Service,
  target: Target,
  waitSeconds: number,
  signal: AbortSignal,
): Promise<{ service: Service | null; done: boolean }> {
  let last: Service = service;
  if (waitSeconds === 0) return { service, done: false };
  try {
    const seen = await waitFor(client, service, target, {
      timeoutMs: waitSeconds * 1000,
      signal,
      onStatus: (next) => {
        last = next;
      },
    });
    return { service: seen, done: true };
  } catch (error) {
    if (error instanceof WaitError) return { service: last, done: false };
    throw error;
  }
}
