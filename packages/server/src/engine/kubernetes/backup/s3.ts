/**
 * Lists and removes objects of an S3 bucket, by requests that are signed as AWS describes it:
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 * Nothing else of S3 is needed here: the plugin writes and reads the backups.
 */
import { request } from 'node:https';
import { messageOf } from '@howdah/contract/thrown';
import aws4 from 'aws4';
import { EngineUnavailable } from '../../engine.ts';
import { folderOf, type ObjectStore } from '../../object-store.ts';
import { textOf } from '../api/client.ts';

/** For a whole answer. */
const DEADLINE_MS = 15_000;
/** Removals at a time. */
const AT_A_TIME = 8;
/** Removals of a call, and how long it may begin others. */
const REMOVED = 50;
const REMOVE_MS = 2000;
/** The largest answer that is read: a list of 1000 objects has up to 4 MB. */
const MAX_BYTES = 8 * 1024 * 1024;

/** Why a store did not do what it was asked for, in words for users. */
export class StoreError extends EngineUnavailable {}

/**
 * Lists, writes and removes an object, as the key must be able to.
 *
 * @param readOnly only lists
 * @throws StoreError
 */
export async function tryStore(store: ObjectStore, readOnly = false): Promise<void> {
  await listKeys(store, '', 1);
  if (readOnly) return;
  const key = `${folderOf(store)}/${TRIED}`;
  await ask(store, 'PUT', key, {});
  await ask(store, 'DELETE', key, {});
}

/** The name of an empty object, beside the folders of services. */
const TRIED = 'howdah-doctor';

/**
 * Removes the first objects of a folder, so few that other services need not wait. Called until
 * none is left.
 *
 * @param folder without the slash at its end
 * @returns how many were removed; 0: none is left
 * @throws StoreError
 */
export async function removeSome(store: ObjectStore, folder: string): Promise<number> {
  const prefix = `${folder}/`;
  const endMs = Date.now() + REMOVE_MS;
  // The answer of the server is input.
  const keys = (await listKeys(store, prefix, REMOVED)).filter((key) => key.startsWith(prefix));
  let count = 0;
  while (count < keys.length && (count === 0 || Date.now() < endMs)) {
    const some = keys.slice(count, count + AT_A_TIME);
    await Promise.all(some.map((key) => ask(store, 'DELETE', key, {})));
    count += some.length;
  }
  return count;
}

/**
 * The size of all objects of a folder, in bytes: of the first million, if it has more.
 *
 * @param folder without the slash at its end
 * @throws StoreError
 */
export async function sizeOf(store: ObjectStore, folder: string): Promise<number> {
  let bytes = 0;
  let token: string | undefined;
  for (let page = 0; page < 1000; page += 1) {
    const more = token === undefined ? {} : { 'continuation-token': token };
    const body = await list(store, `${folder}/`, 1000, more);
    for (const [, size] of body.matchAll(/<Size>(\d{1,15})<\/Size>/g)) bytes += Number(size);
    const [, next] = /<NextContinuationToken>([^<]+)</.exec(body) ?? [];
    if (next === undefined) return bytes;
    token = unescaped(next);
  }
  return bytes;
}

const listKeys = async (store: ObjectStore, prefix: string, count: number): Promise<string[]> =>
  keysIn(await list(store, prefix, count));

async function list(
  store: ObjectStore,
  prefix: string,
  count: number,
  more: Readonly<Record<string, string>> = {},
): Promise<string> {
  const body = await ask(store, 'GET', '', {
    'list-type': '2',
    'encoding-type': 'url',
    'max-keys': String(count),
    prefix,
    ...more,
  });
  // The page of a proxy is no empty bucket.
  if (body.includes('<ListBucketResult')) return body;
  throw new StoreError(`the object store ${store.endpoint} answers with no list of objects`);
}

/** The names of the objects in an answer, which are encoded as in a URL. */
export function keysIn(body: string): string[] {
  return [...body.matchAll(/<Key>([^<]+)<\/Key>/g)].flatMap(([, key = '']) => {
    try {
      return [decodeURIComponent(unescaped(key).replaceAll('+', ' '))];
    } catch {
      return [];
    }
  });
}

const unescaped = (xml: string): string =>
  xml
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&apos;', "'")
    .replaceAll('&amp;', '&');

async function ask(
  store: ObjectStore,
  method: 'GET' | 'PUT' | 'DELETE',
  key: string,
  query: Readonly<Record<string, string>>,
): Promise<string> {
  const at = `the object store ${store.endpoint}`;
  if (!URL.canParse(store.endpoint)) throw new StoreError(`${at} has no valid address`);
  const { headers, path } = signed(store, { method, key, query, now: new Date() });
  const answer = await new Promise<{ status: number; body: string }>((resolve, reject) => {
    // Not as a part of the URL, which would take the name of an object with `..` for another one.
    const sent = request(new URL(store.endpoint), {
      method,
      path,
      headers,
      ...(store.caPem === null ? {} : { ca: store.caPem }),
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    sent.on('response', (response) => {
      textOf(response, MAX_BYTES).then(
        (body) => resolve({ status: response.statusCode ?? 0, body }),
        reject,
      );
    });
    sent.on('error', reject);
    sent.end();
  }).catch((error: unknown) => {
    const why = messageOf(error);
    throw new StoreError(`${at} does not answer: ${why.slice(0, 200)}`, { cause: error });
  });
  if (answer.status >= 200 && answer.status <= 299) return answer.body;
  const [, code = 'no code'] = /<Code>([A-Za-z0-9]{1,64})<\/Code>/.exec(answer.body) ?? [];
  throw new StoreError(
    `${at} refuses the bucket ${store.bucket} with the status ${answer.status} (${code})`,
  );
}

/** As AWS encodes: all but letters, digits and four signs. */
const encoded = (part: string): string =>
  encodeURIComponent(part).replaceAll(
    /[!'()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );

type Asked = Readonly<{
  method: string;
  key: string;
  query: Readonly<Record<string, string>>;
  now: Date;
}>;

/** The path and the headers of a request. The bucket is in the path, which all servers take. */
export function signed(store: ObjectStore, { method, key, query, now }: Asked) {
  const { host } = new URL(store.endpoint);
  const asked = Object.entries(query)
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .join('&');
  const plain = `/${[store.bucket, ...key.split('/')].map(encoded).join('/')}`;
  const path = asked === '' ? plain : `${plain}?${asked}`;
  const date = { 'x-amz-date': now.toISOString().replaceAll(/[:-]|\.\d{3}/g, '') };
  const { headers = {} } = aws4.sign(
    { service: 's3', region: store.region, host, method, path, headers: { host, ...date } },
    { accessKeyId: store.keyId, secretAccessKey: store.key },
  );
  return { path, headers };
}
