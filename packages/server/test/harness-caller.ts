/** Calls of the API of one installation with one key, as tests make them. */
import { createClient, HowdahError, type HowdahClient, type Schemas } from '@howdah/client';
import { Hopeless, until } from './until.ts';

export type Service = Schemas['Service'];
export type Answer = { status: number; body: unknown; headers: Headers };

/** Where calls go, and with which key. */
export type Access = { apiUrl: string; projectId: string; key: string };

/** A raw request below the project. An answer of any status is returned. */
async function request(
  { apiUrl, projectId, key }: Access,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const response = await fetch(`${apiUrl}/projects/${projectId}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  return {
    status: response.status,
    body: parseMaybe(await response.text()),
    headers: response.headers,
  };
}

/**
 * A list, page after page. A thing that comes a second time ends it: pages that repeat what was
 * there may have no end.
 */
async function pages<T>(
  access: Access,
  path: string,
  idOf: (one: T) => string,
): Promise<{ all: T[]; pages: number }> {
  const found = new Map<string, T>();
  let count = 0;
  for (let next: string | undefined = path; next !== undefined; count++) {
    const { status, body, headers } = await request(access, 'GET', next);
    if (status !== 200 || !Array.isArray(body))
      throw new Error(`${next} answered ${status}: ${JSON.stringify(body)}`);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a schema is checked elsewhere
    for (const one of body as T[]) {
      if (found.has(idOf(one))) throw new Error(`${next} repeats ${idOf(one)}`);
      found.set(idOf(one), one);
    }
    next = /projects\/[a-z0-9]+(\/[^>]+)>; rel="next"/.exec(headers.get('Link') ?? '')?.[1];
  }
  return { all: [...found.values()], pages: count };
}

const isMissing = (error: unknown): boolean => error instanceof HowdahError && error.status === 404;

/** The functions that an installation offers to tests beside its processes. */
export function callerOf(access: Access) {
  const { apiUrl, projectId, key } = access;
  const client: HowdahClient = createClient({ apiUrl, key });

  const getService = async (id: string): Promise<Service> => {
    const path = { project_id: projectId, service_id: id };
    const { data } = await client
      .GET('/projects/{project_id}/services/{service_id}', { params: { path } })
      .catch((error: unknown) => {
        throw isMissing(error) ? new Hopeless(`there is no service ${id}`) : error;
      });
    if (data === undefined) throw new Error(`no body for service ${id}`);
    return data;
  };

  /** Waits until a service has a status. */
  const untilStatus = (id: string, status: Service['status']): Promise<Service> =>
    until(`service ${id} is ${status}`, async () => {
      const service = await getService(id);
      if (service.status !== status) throw new Error(`it is ${service.status}`);
      return service;
    });

  const create = async (
    body: Schemas['CreateService'],
    status: Service['status'] = 'READY',
  ): Promise<Service & { initial_password: string }> => {
    const { data } = await client.POST('/projects/{project_id}/services', {
      params: { path: { project_id: projectId } },
      body,
    });
    if (data?.initial_password === undefined) throw new Error('create answered without a password');
    return {
      ...(await untilStatus(data.service_id, status)),
      initial_password: data.initial_password,
    };
  };

  const operations = async (serviceId?: string): Promise<Schemas['Operation'][]> => {
    const query = serviceId === undefined ? {} : { service_id: serviceId };
    const { data } = await client.GET('/projects/{project_id}/operations', {
      params: { path: { project_id: projectId }, query },
    });
    return data ?? [];
  };

  return {
    apiUrl,
    projectId,
    key,
    client,
    request: (
      method: string,
      path: string,
      body?: unknown,
      headers?: Record<string, string>,
    ): Promise<Answer> => request(access, method, path, body, headers),
    pages: <T>(path: string, idOf: (one: T) => string) => pages(access, path, idOf),
    get: getService,
    until: untilStatus,
    create,
    operations,
  };
}

function parseMaybe(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
