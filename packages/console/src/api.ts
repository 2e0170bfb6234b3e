/**
 * The console's calls of the API, through the typed client. The key of a query begins with its
 * service.
 */
import { createClient, DryRunError, HowdahError, type Schemas } from '@howdah/client';
import { visibleJson } from '@howdah/contract/text';
import type { Action } from '@howdah/contract/actions';
import { protectionOf } from '@howdah/contract/permissions';
import { BASE_PATH, CONSOLE_HEADER, type Environment } from '@howdah/contract/types';
import { askName } from './ask-name.ts';
import { queryOptions } from '@tanstack/react-query';

export type Service = Schemas['Service'];
export type Operation = Schemas['Operation'];
export type Member = Schemas['Member'];
export type Region = Schemas['Region'];
export type Backups = Schemas['Backups'];
export type ServiceExtension = Schemas['ServiceExtension'];
export type LogEntry = Schemas['ServiceLogs']['entries'][number];
export type DeletedService = Schemas['DeletedService'];
export type RecoveryKit = Schemas['RecoveryKit'];
export type KitService = NonNullable<Schemas['DryRun']['services']>[number];
export type Me = Schemas['AuthInfo']['api_key'];

export { BASE_PATH as BASE } from '@howdah/contract/types';

/**
 * Names, logs and messages are texts of tenants. Characters that reorder text, or are invisible,
 * are shown as escapes.
 */
async function fetchVisible(request: Request): Promise<Response> {
  const response = await globalThis.fetch(request);
  if (response.headers.get('Content-Type')?.startsWith('application/json') !== true)
    return response;
  const text = await response.text();
  return new Response(text === '' ? null : visibleJson(text), response);
}

/**
 * The cookie stands for the key. {@link ./live.ts} repeats queries and reports a lost control
 * plane.
 */
const calls = {
  apiUrl: new URL(BASE_PATH, window.location.href).href,
  headers: { [CONSOLE_HEADER]: '1' },
  retries: 0,
};

export const client = createClient({ ...calls, fetch: fetchVisible });

/** For answers that are saved, not shown: they stay as they are, character by character. */
export const exactClient = createClient(calls);

/** For calls that only ask what would be done. */
const dryClient = createClient({ ...calls, fetch: fetchVisible, dryRun: true });

/** The body of a response. @throws if it has none */
export async function body<T>(call: Promise<{ data?: T }>): Promise<T> {
  const { data } = await call;
  if (data === undefined) throw new Error('the server answered without a body');
  return data;
}

// ── session ──────────────────────────────────────────────────────────────────────────────────────

/** Null: nobody is logged in. */
export const meQuery = queryOptions({
  queryKey: ['me'],
  queryFn: async ({ signal }): Promise<Me | null> => {
    try {
      return (await body(client.GET('/auth/info', { signal }))).api_key;
    } catch (error) {
      if (error instanceof HowdahError && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: 60_000,
});

// ── reads ────────────────────────────────────────────────────────────────────────────────────────

const ofProject = (project: string) => ({ path: { project_id: project } });
const ofService = (project: string, id: string) => ({
  path: { project_id: project, service_id: id },
});

export const servicesQuery = (project: string) =>
  queryOptions({
    queryKey: ['services', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}/services', { params: ofProject(project), signal })),
  });

export const serviceQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['service', id],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/services/{service_id}', {
          params: ofService(project, id),
          signal,
        }),
      ),
  });

export const operationsQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['service', id, 'operations'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/operations', {
          params: { ...ofProject(project), query: { service_id: id } },
          signal,
        }),
      ),
  });

/** The operations of a project that have begun and not ended. */
export const runningQuery = (project: string) =>
  queryOptions({
    queryKey: ['operations', project, 'running'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/operations', {
          params: { ...ofProject(project), query: { status: 'running' } },
          signal,
        }),
      ),
  });

/** A single operation has the estimate of its remaining time, which a list has not. */
export const operationQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['operation', id],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/operations/{operation_id}', {
          params: { path: { project_id: project, operation_id: id } },
          signal,
        }),
      ),
  });

export const membersQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['service', id, 'members'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/services/{service_id}/members', {
          params: ofService(project, id),
          signal,
        }),
      ),
  });

export const backupsQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['service', id, 'backups'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/services/{service_id}/backupStatus', {
          params: ofService(project, id),
          signal,
        }),
      ),
  });

export const certificatesQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['service', id, 'certificates'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/services/{service_id}/backups/certificates', {
          params: ofService(project, id),
          signal,
        }),
      ),
  });

export const extensionsQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['service', id, 'extensions'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/services/{service_id}/extensions', {
          params: ofService(project, id),
          signal,
        }),
      ),
  });

export type SeriesRange = { fromMs: number; toMs: number; bucketSeconds: number };

export const seriesQuery = (project: string, id: string, name: string, range: SeriesRange) =>
  queryOptions({
    queryKey: ['service', id, 'series', name, range.fromMs, range.toMs],
    queryFn: ({ signal }) =>
      body(
        client.POST('/projects/{project_id}/services/{service_id}/metrics/series', {
          params: ofService(project, id),
          body: {
            name,
            from: new Date(range.fromMs).toISOString(),
            to: new Date(range.toMs).toISOString(),
            bucket_seconds: range.bucketSeconds,
            fn: 'avg',
          },
          signal,
        }),
      ),
  });

export const seriesNamesQuery = (project: string, id: string) =>
  queryOptions({
    queryKey: ['service', id, 'series'],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/services/{service_id}/metrics/available-series', {
          params: ofService(project, id),
          signal,
        }),
      ),
    staleTime: Infinity,
  });

export type LogFilter = { search: string; severities: string[]; node?: number };

export async function readLogs(
  project: string,
  id: string,
  filter: LogFilter,
  more: { cursor?: string; since?: string },
  signal: AbortSignal,
) {
  const query = {
    ...(filter.search === '' ? {} : { search: filter.search }),
    ...(filter.severities.length === 0 ? {} : { severities: filter.severities }),
    ...(filter.node === undefined ? {} : { node: String(filter.node) }),
    ...more,
  };
  return body(
    client.GET('/projects/{project_id}/services/{service_id}/logs', {
      params: { ...ofService(project, id), query },
      signal,
    }),
  );
}

export const regionsQuery = (project: string) =>
  queryOptions({
    queryKey: ['regions', project],
    queryFn: ({ signal }) =>
      body(client.GET('/projects/{project_id}/regions', { params: ofProject(project), signal })),
    staleTime: 60_000,
  });

export const deletedQuery = (project: string) =>
  queryOptions({
    queryKey: ['deleted', project],
    queryFn: ({ signal }) =>
      body(
        client.GET('/projects/{project_id}/deletedServices', {
          params: ofProject(project),
          signal,
        }),
      ),
  });

/** The service that a call created. */
async function created(call: Promise<{ data?: object }>): Promise<Service> {
  const answer = await body(call);
  if (!isService(answer)) throw new Error('the answer contains no service: nothing was created');
  return answer;
}
const isService = (answer: object): answer is Service =>
  'service_id' in answer && 'endpoint' in answer;

export const readCertificate = (project: string, service: string, id: string) =>
  body(
    client.GET(
      '/projects/{project_id}/services/{service_id}/backups/certificates/{certificate_id}',
      { params: { path: { ...ofService(project, service).path, certificate_id: id } } },
    ),
  );

// ── changes ──────────────────────────────────────────────────────────────────────────────────────

/** A service as its calls need it. */
type Changed = Pick<Service, 'service_id' | 'name' | 'metadata' | 'read_replica_sets'>;

/**
 * The calls that change a service, by the names of their actions. Those that a PROD service is
 * protected from ask for its name.
 */
export function serviceCalls(project: string, service: Changed) {
  const params = ofService(project, service.service_id);
  const environment = protectionOf(service.metadata.environment, service.read_replica_sets);
  const asking = async (action: Action, own = environment) => ({
    ...params,
    query: await askName(action, { name: service.name, environment: own }),
  });
  const at = '/projects/{project_id}/services/{service_id}';
  return {
    start: () => client.POST(`${at}/start`, { params }),
    stop: async () => client.POST(`${at}/stop`, { params: await asking('stop') }),
    restart: async () => client.POST(`${at}/restart`, { params: await asking('restart') }),
    resize: async (body: Schemas['ResizeInput']) =>
      client.POST(`${at}/resize`, { params: await asking('resize'), body }),
    rename: (name: string) => client.POST(`${at}/rename`, { params, body: { name } }),
    setExpiry: (body: Schemas['SetExpiry']) => client.POST(`${at}/setExpiry`, { params, body }),
    setAutoSuspend: async (body: Schemas['SetAutoSuspend']) =>
      client.POST(`${at}/setAutoSuspend`, { params: await asking('setAutoSuspend'), body }),
    setEnvironment: async (wanted: Environment) =>
      client.POST(`${at}/setEnvironment`, {
        params: await asking('setEnvironment', service.metadata.environment),
        body: { environment: wanted },
      }),
    updatePassword: async (password: string) =>
      client.POST(`${at}/updatePassword`, {
        params: await asking('updatePassword'),
        body: { password },
      }),
    setHA: async (body: Schemas['SetHAInput']) =>
      client.POST(`${at}/setHA`, { params: await asking('setHA'), body }),
    switchover: async () => client.POST(`${at}/switchover`, { params: await asking('switchover') }),
    drill: async (body: Schemas['DrillInput']) =>
      client.POST(`${at}/drill`, { params: await asking('drill'), body }),
    enablePooler: () => client.POST(`${at}/enablePooler`, { params }),
    disablePooler: async () =>
      client.POST(`${at}/disablePooler`, { params: await asking('disablePooler') }),
    enableExtension: async (name: string) =>
      client.POST(`${at}/extensions`, { params: await asking('enableExtension'), body: { name } }),
    disableExtension: async (name: string) => {
      const { path, query } = await asking('disableExtension');
      return client.DELETE(`${at}/extensions/{extension_name}`, {
        params: { path: { ...path, extension_name: name }, query },
      });
    },
    attachToVPC: async (vpc: string) =>
      client.POST(`${at}/attachToVPC`, {
        params: await asking('attachToVPC'),
        body: { vpc_id: vpc },
      }),
    detachFromVPC: async () =>
      client.POST(`${at}/detachFromVPC`, { params: await asking('detachFromVPC'), body: {} }),
    attachToAllowList: async (list: string) =>
      client.POST(`${at}/attachToAllowList`, {
        params: await asking('attachToAllowList'),
        body: { allow_list_id: list },
      }),
    detachFromAllowList: async (list: string) =>
      client.POST(`${at}/detachFromAllowList`, {
        params: await asking('detachFromAllowList'),
        body: { allow_list_id: list },
      }),
    setBackupRetention: async (days: number | null) =>
      client.PUT(`${at}/backup-retention`, {
        params: await asking('setBackupRetention'),
        body: { retention_days: days },
      }),
    runBackup: () => client.POST(`${at}/backups/run`, { params, body: {} }),
    verifyBackup: () => client.POST(`${at}/backups/verify`, { params }),
    verifyInRepositories: () =>
      client.POST(`${at}/backups/verify`, { params: { ...params, query: { repository: 'true' } } }),
    upgrade: (body: Schemas['UpgradeService']) => client.POST(`${at}/upgrade`, { params, body }),
    fork: (request: Schemas['ForkService']) =>
      created(client.POST(`${at}/forkService`, { params, body: request })),
    reset: (body: Schemas['ResetService']) => client.POST(`${at}/reset`, { params, body }),
    recover: (confirm: string) => client.POST(`${at}/recover`, { params, body: { confirm } }),
    delete: (confirm: string) => client.DELETE(at, { params: { ...params, query: { confirm } } }),
  };
}

/** The calls about a service that is deleted. */
export function deletedCalls(project: string, id: string) {
  const params = ofService(project, id);
  const at = '/projects/{project_id}/services/{service_id}';
  return {
    restore: () => client.POST(`${at}/restore`, { params }),
    purge: (name: string) =>
      client.DELETE(at, { params: { ...params, query: { purge: 'true', confirm: name } } }),
  };
}

export const cancelOperation = (project: string, id: string) =>
  client.POST('/projects/{project_id}/operations/{operation_id}/cancel', {
    params: { path: { project_id: project, operation_id: id } },
  });

/** The services in the repository of a recovery kit, and what comes back of each. */
export async function listInKit(
  project: string,
  body: Schemas['CreateServiceFromKit'],
): Promise<KitService[]> {
  try {
    await dryClient.POST('/projects/{project_id}/services/fromKit', {
      params: ofProject(project),
      body,
    });
  } catch (error) {
    if (error instanceof DryRunError) return error.answer.services ?? [];
    throw error;
  }
  throw new Error('the server made a dry run in earnest');
}

/** The parts of its service that a fork would not have: a dry run names them. */
export const forkLossesQuery = (project: string, id: string, body: Schemas['ForkService']) =>
  queryOptions({
    queryKey: ['fork losses', project, id, body],
    queryFn: async ({ signal }): Promise<string[]> => {
      try {
        await dryClient.POST('/projects/{project_id}/services/{service_id}/forkService', {
          params: { path: { project_id: project, service_id: id } },
          body,
          signal,
        });
      } catch (error) {
        if (error instanceof DryRunError) return error.answer.not_carried ?? [];
        throw error;
      }
      throw new Error('the server made a dry run in earnest');
    },
  });

export const createFromKit = (project: string, request: Schemas['CreateServiceFromKit']) =>
  created(
    client.POST('/projects/{project_id}/services/fromKit', {
      params: ofProject(project),
      body: request,
    }),
  );

export const createService = (project: string, request: Schemas['CreateService']) =>
  created(
    client.POST('/projects/{project_id}/services', { params: ofProject(project), body: request }),
  );

// ── passwords ────────────────────────────────────────────────────────────────────────────────────

/**
 * Initial passwords of services created in this tab. Only the answer to the create has them; the
 * tab forgets them.
 */
const passwords = new Map<string, string>();
export const rememberPassword = ({ service_id: id, initial_password: password }: Service): void => {
  if (password !== undefined) passwords.set(id, password);
};
export const setKnownPassword = (id: string, password: string): void =>
  void passwords.set(id, password);
export const passwordOf = (id: string): string | undefined => passwords.get(id);
