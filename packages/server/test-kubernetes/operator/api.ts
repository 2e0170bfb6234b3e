/** Requests of the operator double to the API server; the caller's schema checks the answers. */
import { Agent, request } from 'node:https';
import { text } from 'node:stream/consumers';
import { Type, type Static, type TSchema } from 'typebox';
import { Value } from 'typebox/value';
import type { Connection } from '../probe.ts';
import { until } from '../../test/until.ts';

const CONFLICT = 409;
const NOT_FOUND = 404;
const LIST = Type.Object({ items: Type.Array(Type.Unknown()) });

/** Right after its creation, an object has no conditions yet: left out, or null. */
const WITH_CONDITIONS = Type.Object({
  status: Type.Object({
    conditions: Type.Optional(
      Type.Union([
        Type.Null(),
        Type.Array(Type.Object({ type: Type.String(), status: Type.String() })),
      ]),
    ),
  }),
});

export type Api = ReturnType<typeof openApi>;

/** An object, as far as its name matters. */
export type Named = Readonly<{ metadata: Readonly<{ name: string }> }>;

type Answer = Readonly<{ status: number; body: string }>;

/** @param connection that of an administrator */
export function openApi(connection: Connection) {
  const agent = new Agent({ keepAlive: true });
  const send = (method: string, path: string, body?: object, type = 'application/json') =>
    sendTo(connection, agent, { method, path, body, type });
  const create = async (path: string, object: object): Promise<void> => {
    const answer = await send('POST', path, object);
    if (answer.status !== CONFLICT) checked(answer, path);
  };
  const read = async <T extends TSchema>(path: string, schema: T): Promise<Static<T>> =>
    parse(schema, path, checked(await send('GET', path), path));
  return {
    read,
    /** The objects of a collection; those that are not as the schema wants are left out. */
    list: async <T extends TSchema>(path: string, schema: T): Promise<Static<T>[]> =>
      (await read(path, LIST)).items.filter((item): item is Static<T> => Value.Check(schema, item)),
    /** Creates an object; one of its name stays as it is. */
    create,
    /** The same for a Service, which is patched: a port of its own would be refused as taken. */
    writeService: async (path: string, service: Named & Readonly<{ spec: object }>) => {
      const { spec } = service;
      const own = `${path}/${service.metadata.name}`;
      const answer = await send('PATCH', own, { spec }, 'application/merge-patch+json');
      if (answer.status === NOT_FOUND) await create(path, service);
      else checked(answer, own);
    },
    /** Changes fields; null removes one. An object that is gone stays so. */
    merge: async (path: string, patch: object): Promise<void> => {
      const answer = await send('PATCH', path, patch, 'application/merge-patch+json');
      if (answer.status !== NOT_FOUND) checked(answer, path);
    },
    /** The same, unless the object has changed since it was read. */
    mergeVersion: async (path: string, resourceVersion: string, patch: object): Promise<void> => {
      const body = { ...patch, metadata: { resourceVersion } };
      const answer = await send('PATCH', path, body, 'application/merge-patch+json');
      if (answer.status !== NOT_FOUND && answer.status !== CONFLICT) checked(answer, path);
    },
    remove: async (path: string, graceSeconds?: number): Promise<void> => {
      const grace = graceSeconds === undefined ? {} : { gracePeriodSeconds: graceSeconds };
      const answer = await send('DELETE', path, { propagationPolicy: 'Background', ...grace });
      if (answer.status !== NOT_FOUND) checked(answer, path);
    },
    close: (): void => agent.destroy(),
  };
}

/** Waits until a condition of the object is true. */
export async function awaitCondition(api: Api, path: string, type: string): Promise<void> {
  await until(`${path} is ${type}`, async () => {
    const { status } = await api.read(path, WITH_CONDITIONS);
    return (status.conditions ?? []).some((one) => one.type === type && one.status === 'True');
  });
}

type Sent = Readonly<{ method: string; path: string; body?: object | undefined; type: string }>;

async function sendTo(
  { server, authorityPem, credential }: Connection,
  agent: Agent,
  { method, path, body, type }: Sent,
): Promise<Answer> {
  if (credential.kind === 'program') throw new Error('a cluster of tests has no program');
  const payload = body === undefined ? '' : JSON.stringify(body);
  const login =
    credential.kind === 'token'
      ? { headers: { authorization: `Bearer ${await credential.read()}` } }
      : { headers: {}, cert: credential.certificatePem, key: credential.keyPem };
  return new Promise((resolve, reject) => {
    const options = {
      ...login,
      agent,
      method,
      headers: {
        ...login.headers,
        'content-type': type,
        'content-length': Buffer.byteLength(payload),
      },
      ...(authorityPem === null ? {} : { ca: authorityPem }),
    };
    const sent = request(new URL(path, server), options, (answer) => {
      text(answer).then((got) => resolve({ status: answer.statusCode ?? 0, body: got }), reject);
    });
    sent.on('error', reject);
    sent.end(payload);
  });
}

function checked({ status, body }: Answer, path: string): string {
  if (status >= 200 && status <= 299) return body;
  throw new Error(`${path}: ${status} ${body}`);
}

function parse<T extends TSchema>(schema: T, path: string, body: string): Static<T> {
  const parsed: unknown = JSON.parse(body);
  if (Value.Check(schema, parsed)) return parsed;
  throw new Error(`${path}: ${JSON.stringify([...Value.Errors(schema, parsed)][0])}`);
}
