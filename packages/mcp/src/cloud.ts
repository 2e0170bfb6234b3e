/** The project of a key, and its services in the form that tools use. */
import {
  createClient,
  HowdahError,
  waitFor,
  WaitError,
  type ClientOptions,
  type HowdahClient,
  type Schemas,
  type Target,
} from '@howdah/client';
import { uriOf } from '@howdah/contract/connect';
import { simulationNote } from '@howdah/contract/simulated';
import { waitingNote } from '@howdah/contract/waits';
import { isId, refusalOfCall, type Environment, type Permission } from '@howdah/contract';
import type { Passwords } from './passwords.ts';
import { Problem } from './problem.ts';
import { noteWarning } from './tool.ts';

export type Service = Schemas['Service'];

export type Cloud = {
  client: HowdahClient;
  /** The id of the key's project; read once. */
  projectId: () => Promise<string>;
  /** The CA of the databases, in PEM. @throws Problem */
  fetchCa: () => Promise<string>;
  /** The passwords that this process knows. */
  passwords: Passwords;
};

/** @param passwords shared by the requests of a process; each checks whose fork it is */
export function openCloud(options: ClientOptions, passwords: Passwords): Cloud {
  const client = createClient({ ...options, onWarning: noteWarning });
  const { apiUrl, fetch = (request: Request) => globalThis.fetch(request) } = options;
  let known: string | undefined;
  return {
    client,
    projectId: async () => (known ??= body(await client.GET('/auth/info')).api_key.project.id),
    fetchCa: async () => {
      const response = await fetch(new Request(`${apiUrl}/ca.pem`, { redirect: 'manual' }));
      if (response.ok) return response.text();
      throw new Problem(`the API answered ${response.status} to GET /ca.pem`, 'try again');
    },
    passwords,
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

/** A service by its id or name; a read replica set by its id. @throws Problem, HowdahError */
export async function findService(
  { client, projectId }: Cloud,
  nameOrId: string,
): Promise<Service> {
  const project_id = await projectId();
  const services = body(
    await client.GET('/projects/{project_id}/services', { params: { path: { project_id } } }),
  );
  const found = chooseNamed(nameOrId, services, 'get_service shows each');
  if (found !== null) return found;
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
    'NOT_FOUND',
  );
}

/** A service, or a deleted one, by what distinguishes it from others with its name. */
type Named = {
  service_id: string;
  name: string;
  project_id?: string;
  region_code?: string;
  status?: string;
};

/**
 * The one of these services that an argument means: an id precedes names.
 *
 * @param where the tool that shows the differences between them
 * @returns null: none has the id or name
 * @throws Problem AMBIGUOUS, with the candidates
 */
export function chooseNamed<Of extends Named>(
  nameOrId: string,
  services: readonly Of[],
  where: string,
): Of | null {
  const byId = services.find(({ service_id }) => service_id === nameOrId);
  if (byId !== undefined) return byId;
  const [found, ...others] = services.filter(({ name }) => name === nameOrId);
  if (found === undefined || others.length === 0) return found ?? null;
  const candidates = [found, ...others].map(
    ({ service_id, name, project_id, region_code, status }) => ({
      service_id,
      name,
      project_id,
      region_code,
      status,
    }),
  );
  const words = candidates.map(({ service_id, region_code: region }) =>
    region === undefined ? service_id : `${service_id} (${region})`,
  );
  throw new Problem(
    `${candidates.length} services are named ${JSON.stringify(nameOrId)}: ${words.join(', ')}`,
    `call again with the service_id of one of them as service; ${where}`,
    'AMBIGUOUS',
    { candidates },
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

/** The key that makes the calls. */
export async function readKey({ client }: Cloud): Promise<Schemas['AuthInfo']['api_key']> {
  return body(await client.GET('/auth/info')).api_key;
}

/**
 * Refuses what the key may not do, before an agent asks its user to confirm it.
 *
 * @param of what the call would take away from its clients
 * @throws HowdahError FORBIDDEN, as the API throws it
 */
export async function refuseDenied(
  cloud: Cloud,
  permission: Permission,
  of: { environment?: Environment; createdBy?: string | undefined },
): Promise<void> {
  const refused = refusalOfCall(await readKey(cloud), permission, of);
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
