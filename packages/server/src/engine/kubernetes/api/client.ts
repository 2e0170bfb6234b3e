/**
 * Requests to the API of a cluster, over `node:https`. Answers are parsed by the schema of the
 * caller: what a cluster says is input.
 *
 * Objects are written by server-side apply with one field manager and always whole, so that a
 * request can be repeated after a crash. The change of somebody else is a conflict, unless a user
 * has asked to take it back.
 */
import { Agent, request, type RequestOptions } from 'node:https';
import type { IncomingMessage } from 'node:http';
import pLimit from 'p-limit';
import { Type, type Static, type TSchema } from 'typebox';
import { Value } from 'typebox/value';
import type { Issued } from './credential-plugin.ts';
import { KubeError, noAnswer, noCredentials, refusalOf } from './errors.ts';
import type { Connection, Credential } from './kubeconfig.ts';
import { pathOf, type Place } from './kinds.ts';

export const FIELD_MANAGER = 'howdah';

/** Requests at a time; those of watches and of followed logs are beside them. */
const AT_A_TIME = 16;
/** For a whole answer. */
const DEADLINE_MS = 30_000;
/** The largest answer that is read: a list of 500 clusters has about 10 MB. */
const MAX_BYTES = 64 * 1024 * 1024;

/** An object with what every object has. */
export type Manifest = Readonly<{
  apiVersion: string;
  kind: string;
  metadata: Readonly<{
    name: string;
    namespace?: string;
    labels?: Readonly<Record<string, string>>;
    annotations?: Readonly<Record<string, string>>;
    ownerReferences?: readonly OwnerReference[];
  }>;
}> &
  Readonly<Record<string, unknown>>;

export type OwnerReference = Readonly<{
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
}>;

export type Kube = ReturnType<typeof createKube>;

type Asked = Readonly<{
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  path: string;
  /** As the end of "cannot …". */
  what: string;
  body?: unknown;
  contentType?: string;
  signal?: AbortSignal;
}>;

/** Sends a request and reads its whole answer. @throws KubeError */
type Ask = (asked: Asked) => Promise<string>;

/** @param mayWrite asked right before each request that is no read */
export function createKube(connection: Connection, mayWrite: () => boolean = () => true) {
  const agent = new Agent({ keepAlive: true });
  const limit = pLimit(AT_A_TIME);
  const send = async (asked: Asked) => {
    if (asked.method !== 'GET' && !mayWrite())
      throw new KubeError(
        `this control plane may not ${asked.what}: another one may work`,
        null,
        null,
      );
    return open(connection, agent, asked);
  };
  const ask: Ask = (asked) => limit(async () => readWhole(asked.what, await send(asked)));
  return {
    ...createReads(ask),
    ...createWrites(ask),
    /** An answer that goes on until the signal, or until the other side ends it. */
    stream: async (path: string, what: string, signal: AbortSignal): Promise<IncomingMessage> => {
      const answer = await send({ method: 'GET', path, what, signal });
      if (answer.statusCode === 200) return answer;
      throw refusalOf(what, answer.statusCode ?? 0, await textOf(answer, MAX_BYTES));
    },
    close: (): void => agent.destroy(),
  };
}

function createReads(ask: Ask) {
  return {
    /** @returns null: there is no such object */
    get: async <T extends TSchema>(place: Place, schema: T): Promise<Static<T> | null> => {
      const asked = { method: 'GET', path: pathOf(place), what: `read ${nameOf(place)}` } as const;
      try {
        return parse(schema, asked.what, await ask(asked));
      } catch (error) {
        if (error instanceof KubeError && error.status === 404) return null;
        throw error;
      }
    },
    /**
     * @param selector labels that the objects must have
     * @param fields a selector of fields
     */
    list: async <T extends TSchema>(
      place: Place,
      schema: T,
      selector: Readonly<Record<string, string>> = {},
      fields = '',
    ): Promise<{ items: Static<T>[]; resourceVersion: string }> => {
      const what = `list ${place.kind.plural}`;
      const query = new URLSearchParams({
        labelSelector: selectorOf(selector),
        fieldSelector: fields,
      });
      const path = `${pathOf(place)}?${query.toString()}`;
      const { items, metadata } = parse(LIST, what, await ask({ method: 'GET', path, what }));
      return {
        items: items.map((item) => check(schema, what, item)),
        resourceVersion: metadata.resourceVersion,
      };
    },
    /** Any path, for what is no object: `/version`, `/readyz`. */
    read: <T extends TSchema>(path: string, schema: T): Promise<Static<T>> =>
      ask({ method: 'GET', path, what: `answer ${path}` }).then((body) =>
        parse(schema, `answer ${path}`, body),
      ),
    /** An answer that is no JSON: a log. */
    text: (path: string, signal?: AbortSignal): Promise<string> =>
      ask({
        method: 'GET',
        path,
        what: 'read the log',
        ...(signal === undefined ? {} : { signal }),
      }),
  };
}

const APPLY = { fieldManager: FIELD_MANAGER, fieldValidation: 'Strict' };

function createWrites(ask: Ask) {
  return {
    /**
     * Writes an object with all fields that are ours.
     *
     * @param fields of other managers: `taken back`, since a user has asked for that
     * @returns the object as it is now
     * @throws KubeError 409 for fields of another manager that are left
     */
    apply: async (
      place: Place,
      manifest: Manifest,
      fields: 'left' | 'taken back' = 'left',
    ): Promise<unknown> => {
      const query = new URLSearchParams(fields === 'left' ? APPLY : { ...APPLY, force: 'true' });
      const what = `write ${nameOf(place)}`;
      const asked = {
        method: 'PATCH',
        path: `${pathOf(place)}?${query.toString()}`,
        what,
        body: manifest,
        contentType: 'application/apply-patch+yaml',
      } as const;
      return parse(Type.Unknown(), what, await ask(asked));
    },
    /**
     * Changes fields that are not part of the manifest: annotations, or a part of the status.
     *
     * @returns the object as it is now
     * @throws KubeError 409 when the patch names another version of the object
     */
    merge: async (place: Place, patch: object, subresource?: 'status'): Promise<unknown> => {
      const query = new URLSearchParams({ fieldManager: `${FIELD_MANAGER}-state` });
      const what = `change ${nameOf(place)}`;
      const asked = {
        method: 'PATCH',
        path: `${pathOf(place, subresource)}?${query.toString()}`,
        what,
        body: patch,
        contentType: 'application/merge-patch+json',
      } as const;
      return parse(Type.Unknown(), what, await ask(asked));
    },
    create: async <T extends TSchema>(place: Place, object: object, schema: T) => {
      const what = `create ${place.kind.kind}`;
      const asked = { method: 'POST', path: pathOf(place), what, body: object } as const;
      return parse(schema, what, await ask(asked));
    },
    /** Has a new object examined, and does not store it. */
    tryCreate: async (place: Place, object: Manifest, signal: AbortSignal): Promise<void> => {
      const path = `${pathOf(place)}?dryRun=All`;
      const what = `accept a ${place.kind.kind}`;
      await ask({ method: 'POST', path, what, body: object, signal });
    },
    /**
     * @param graceSeconds how long a pod may take to end; none: its own time
     * @returns whether there was something to delete; it may be there for a while yet
     */
    remove: async (place: Place, graceSeconds?: number): Promise<boolean> => {
      const asked = {
        method: 'DELETE',
        path: pathOf(place),
        what: `delete ${nameOf(place)}`,
        body: {
          propagationPolicy: 'Background',
          ...(graceSeconds === undefined ? {} : { gracePeriodSeconds: graceSeconds }),
        },
      } as const;
      try {
        await ask(asked);
        return true;
      } catch (error) {
        if (error instanceof KubeError && error.status === 404) return false;
        throw error;
      }
    },
  };
}

const LIST = Type.Object({
  metadata: Type.Object({ resourceVersion: Type.String() }),
  items: Type.Array(Type.Unknown()),
});

const nameOf = ({ kind, name }: Place): string =>
  name === null ? kind.plural : `the ${kind.kind} ${name}`;

export const selectorOf = (labels: Readonly<Record<string, string>>): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(',');

const UNAUTHORIZED = 401;

async function open(connection: Connection, agent: Agent, asked: Asked): Promise<IncomingMessage> {
  const { credential } = connection;
  const shown = await shownBy(credential, asked.what);
  const answer = await sendOnce(connection, agent, asked, shown);
  if (credential.kind !== 'program' || answer.statusCode !== UNAUTHORIZED) return answer;
  // Revoked, or expired by the clock of the cluster: it did nothing, so it may be asked again.
  credential.refuse(shown);
  const renewed = await shownBy(credential, asked.what).catch((error: unknown) => {
    answer.destroy();
    throw error;
  });
  if (renewed === shown) return answer;
  answer.destroy();
  return sendOnce(connection, agent, asked, renewed);
}

/** The credentials of a request. @throws KubeError */
async function shownBy(credential: Credential, what: string): Promise<Issued> {
  try {
    switch (credential.kind) {
      case 'certificate':
        return { token: null, certificate: credential, expiresMs: Infinity };
      case 'token': {
        const token = (await credential.read()).trim();
        return { token, certificate: null, expiresMs: Infinity };
      }
      case 'program':
        return await credential.read();
    }
  } catch (error) {
    throw noCredentials(what, error);
  }
}

function sendOnce(
  { server, authorityPem, serverName }: Connection,
  agent: Agent,
  asked: Asked,
  { token, certificate }: Issued,
): Promise<IncomingMessage> {
  const body = asked.body === undefined ? null : Buffer.from(JSON.stringify(asked.body));
  const options: RequestOptions = {
    agent,
    method: asked.method,
    headers: {
      accept: 'application/json',
      'user-agent': FIELD_MANAGER,
      ...(body === null
        ? {}
        : {
            'content-type': asked.contentType ?? 'application/json',
            'content-length': body.length,
          }),
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(authorityPem === null ? {} : { ca: authorityPem }),
    ...(serverName === null ? {} : { servername: serverName }),
    ...(certificate === null ? {} : { cert: certificate.certificatePem, key: certificate.keyPem }),
    signal: asked.signal ?? AbortSignal.timeout(DEADLINE_MS),
  };
  return new Promise((resolve, reject) => {
    const sent = request(new URL(asked.path, server), options, resolve);
    sent.on('error', (error) => reject(noAnswer(asked.what, error)));
    sent.end(body ?? undefined);
  });
}

async function readWhole(what: string, answer: IncomingMessage): Promise<string> {
  const { statusCode = 0 } = answer;
  let body: string;
  try {
    body = await textOf(answer, MAX_BYTES);
  } catch (error) {
    throw noAnswer(what, error);
  }
  if (statusCode < 200 || statusCode > 299) throw refusalOf(what, statusCode, body);
  return body;
}

/** The body of an answer. @throws Error when it is larger, or the connection breaks */
export async function textOf(answer: IncomingMessage, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer) {
    const buffer = Buffer.from(chunk);
    bytes += buffer.length;
    if (bytes > maxBytes) throw new Error(`its answer is larger than ${maxBytes} bytes`);
    chunks.push(buffer);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parse<T extends TSchema>(schema: T, what: string, body: string): Static<T> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    throw new KubeError(`the cluster cannot ${what}: its answer is no JSON`, 200, null);
  }
  return check(schema, what, parsed);
}

function check<T extends TSchema>(schema: T, what: string, value: unknown): Static<T> {
  if (Value.Check(schema, value)) return value;
  const [first] = Value.Errors(schema, value);
  throw new KubeError(
    `the cluster cannot ${what}: its answer has ${first?.instancePath} ${first?.message}`,
    200,
    null,
  );
}
