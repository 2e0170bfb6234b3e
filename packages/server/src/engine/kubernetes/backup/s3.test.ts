import { createHash, createHmac } from 'node:crypto';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { keysIn, removeSome, signed, sizeOf, StoreError, tryStore } from './s3.ts';
import { listOf, STORE, withStore } from './s3.testing.ts';

const NOW = new Date('2013-05-24T00:00:00Z');

/** A signature by the steps of AWS's documentation, from a canonical request. */
function signatureOf(canonical: string, stamp: string, region: string): string {
  const hmac = (key: string | Buffer, data: string) =>
    createHmac('sha256', key).update(data).digest();
  const scope = [stamp.slice(0, 8), region, 's3', 'aws4_request'];
  const digest = createHash('sha256').update(canonical).digest('hex');
  const toSign = ['AWS4-HMAC-SHA256', stamp, scope.join('/'), digest].join('\n');
  return hmac(scope.reduce<string | Buffer>(hmac, `AWS4${STORE.key}`), toSign).toString('hex');
}

const EMPTY = createHash('sha256').digest('hex');
const STAMP = '20130524T000000Z';
const NAMES = 'host;x-amz-content-sha256;x-amz-date';

function canonicalOf(method: string, path: string, query: string, host: string): string {
  const headers = `host:${host}\nx-amz-content-sha256:${EMPTY}\nx-amz-date:${STAMP}\n`;
  return [method, path, query, headers, NAMES, EMPTY].join('\n');
}

test('the signature of the example of AWS, by which the others are checked', () => {
  const host = 'examplebucket.s3.amazonaws.com';
  const canonical = canonicalOf('GET', '/', 'max-keys=2&prefix=J', host);
  // https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, "Get Bucket"
  expect(signatureOf(canonical, STAMP, 'us-east-1')).toBe(
    '34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7',
  );
});

/** All but letters, digits and four signs, byte by byte. */
const percentEncoded = (text: string): string =>
  [...Buffer.from(text)]
    .map((byte) => {
      const sign = String.fromCharCode(byte);
      const hex = byte.toString(16).toUpperCase().padStart(2, '0');
      return /[A-Za-z0-9._~-]/.test(sign) ? sign : `%${hex}`;
    })
    .join('');

test('requests for all names are signed as they are sent', () => {
  const text = fc.oneof(fc.string({ unit: 'binary' }), fc.string({ unit: 'grapheme-ascii' }));
  const odd = fc.constantFrom('.', '..', '', '%2e%2e', '%2F', '+', '?', '#', '\\', "(it's)*!", '€');
  const asked = fc.record({
    method: fc.constantFrom('GET', 'PUT', 'DELETE'),
    key: fc.array(fc.oneof(odd, text)).map((parts) => parts.join('/')),
    query: fc.dictionary(fc.constantFrom('prefix', 'list-type', 'max-keys', 'a', 'a-b'), text),
  });
  const place = fc.record({
    region: fc.constantFrom('us-east-1', 'eu-central-1', 'auto'),
    endpoint: fc.constantFrom('https://s3.amazonaws.com', 'https://minio.example.com:9000'),
  });
  fc.assert(
    fc.property(asked, place, ({ method, key, query }, { region, endpoint }) => {
      const store = { ...STORE, region, endpoint };
      const { host } = new URL(endpoint);
      const { path, headers } = signed(store, { method, key, query, now: NOW });
      const [name = '', parameters = ''] = path.split('?');
      // By their names: `a` comes before `a-b`, although `a=` comes after `a-b=`.
      const sorted = Object.entries(query)
        .toSorted(([one], [other]) => (one < other ? -1 : 1))
        .map(([field, value]) => `${percentEncoded(field)}=${percentEncoded(value)}`);
      expect(name).toBe(`/examplebucket/${key.split('/').map(percentEncoded).join('/')}`);
      expect(parameters.split('&').toSorted().join('&')).toBe(sorted.toSorted().join('&'));
      const signature = signatureOf(
        canonicalOf(method, name, sorted.join('&'), host),
        STAMP,
        region,
      );
      expect(lowerCased(headers)).toEqual({
        host,
        'x-amz-date': STAMP,
        'x-amz-content-sha256': EMPTY,
        authorization:
          `AWS4-HMAC-SHA256 Credential=${STORE.keyId}/20130524/${region}/s3/aws4_request, ` +
          `SignedHeaders=${NAMES}, Signature=${signature}`,
      });
    }),
    { numRuns: 200 },
  );
});

/** Headers with their names in lower case: HTTP does not distinguish. */
const lowerCased = (headers: object) =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));

test('the path of a request has the bucket, the name and the query', () => {
  const query = { 'list-type': '2', prefix: 'howdah/a b/s-x/' };
  const list = signed(STORE, { method: 'GET', key: '', query, now: NOW });
  expect(list.path).toBe('/examplebucket/?list-type=2&prefix=howdah%2Fa%20b%2Fs-x%2F');
  const other = signed(STORE, { method: 'DELETE', key: "it's (1)", query: {}, now: NOW });
  expect(other.path).toBe('/examplebucket/it%27s%20%281%29');
});

test('names of objects are decoded, and those that are none are left out', () => {
  const body = '<Key>a%2Fb+c%26</Key><Key>%</Key><Key>x&amp;y</Key><Prefix>p</Prefix>';
  expect(keysIn(body)).toEqual(['a/b c&', 'x&y']);
});

test('the size of a folder is that of the objects of all pages', async () => {
  const tokens: (string | null)[] = [];
  await withStore(
    ({ url }, answer) => {
      const token = new URL(url ?? '', 'https://h').searchParams.get('continuation-token');
      tokens.push(token);
      const next = '<NextContinuationToken>a&amp;b</NextContinuationToken>';
      const size = token === null ? 5_000_000_000 : 7;
      answer.end(listOf(`<Contents><Size>${size}</Size></Contents>${token === null ? next : ''}`));
    },
    async (store) => expect(await sizeOf(store, 'f/s-a')).toBe(5_000_000_007),
  );
  expect(tokens).toEqual([null, 'a&b']);
});

test('objects of a folder are removed by their names, and others stay', async () => {
  const keys = new Set(['f/s-a/1', 'f/s-a/../s-b/2', 'f/s-b/3']);
  const asked: string[] = [];
  await withStore(
    ({ method, url }, answer) => {
      const list = [...keys].map((key) => `<Key>${key}</Key>`).join('');
      if (method === 'GET') return answer.end(listOf(list));
      asked.push(url ?? '');
      return answer
        .writeHead(keys.delete((url ?? '').slice('/examplebucket/'.length)) ? 204 : 403)
        .end();
    },
    async (store) => {
      expect(await removeSome(store, 'f/s-a')).toBe(2);
      expect(await removeSome(store, 'f/s-a')).toBe(0);
      expect(asked).toEqual(['/examplebucket/f/s-a/1', '/examplebucket/f/s-a/../s-b/2']);
      expect([...keys]).toEqual(['f/s-b/3']);
    },
  );
});

test('few objects are removed at a time, so that others need not wait', async () => {
  let removed = 0;
  const keys = Array.from({ length: 1000 }, (_, index) => `<Key>f/s-a/${index}</Key>`).join('');
  await withStore(
    ({ method, url }, answer) => {
      if (method === 'DELETE') removed += 1;
      const max = Number(new URL(url ?? '', 'https://h').searchParams.get('max-keys'));
      const some = keys.split('</Key>').slice(0, max).join('</Key>');
      answer.end(method === 'GET' ? listOf(`${some}</Key>`) : '');
    },
    async (store) => expect(await removeSome(store, 'f/s-a')).toBe(50),
  );
  expect(removed).toBe(50);
});

test('a store is tried by a list, and by an object that is written and removed', async () => {
  const asked: string[] = [];
  let refused = '';
  await withStore(
    ({ method = '', url = '' }, answer) => {
      asked.push(`${method} ${url.split('?')[0]}`);
      answer.writeHead(method === refused ? 403 : 200).end(listOf(''));
    },
    async (store) => {
      await tryStore(store);
      const object = '/examplebucket/howdah/store12345/howdah-doctor';
      expect(asked).toEqual(['GET /examplebucket/', `PUT ${object}`, `DELETE ${object}`]);
      for (refused of ['PUT', 'DELETE']) await expect(tryStore(store)).rejects.toThrow('403');
    },
  );
});

test.each([
  ['the page of a proxy', '<html>log in</html>', 'answers with no list of objects'],
  ['one without end', listOf('x'.repeat(9 * 1024 * 1024)), 'its answer is larger than'],
])('an answer that is no list is a problem, not an empty bucket: %s', async (_, body, why) => {
  await withStore(
    (_request, answer) => answer.end(body),
    async (store) => {
      await expect(removeSome(store, 'f/s-a')).rejects.toThrow(why);
      await expect(tryStore(store)).rejects.toThrow(StoreError);
    },
  );
});

test.each(['https://127.0.0.1:99999', 'https://999.999.999.999'])(
  'an address that is none is a problem: %s',
  async (endpoint) => {
    await expect(tryStore({ ...STORE, endpoint })).rejects.toThrow(StoreError);
  },
);
