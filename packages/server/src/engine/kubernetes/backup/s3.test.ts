import { expect, test } from 'vitest';
import { keysIn, removeSome, signed, sizeOf, StoreError, tryStore } from './s3.ts';
import { listOf, STORE, withStore } from './s3.testing.ts';

const NOW = new Date('2013-05-24T00:00:00Z');

test('a request is signed for its bucket, path, query and moment', () => {
  const query = { 'list-type': '2', prefix: 'howdah/a b/s-x/' };
  const { host, path, headers } = signed(STORE, { method: 'GET', key: '', query, now: NOW });
  expect(host).toBe('s3.amazonaws.com');
  expect(path).toBe('/examplebucket/?list-type=2&prefix=howdah%2Fa%20b%2Fs-x%2F');
  expect(headers['x-amz-date']).toBe('20130524T000000Z');
  const [credential, names, signature] = headers.authorization.split(', ');
  expect(credential).toMatch(/^AWS4-HMAC-SHA256 Credential=AKIA.*\/20130524\/us-east-1\/s3\//);
  expect(names).toBe('SignedHeaders=host;x-amz-content-sha256;x-amz-date');
  expect(signature).toMatch(/^Signature=[0-9a-f]{64}$/);
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
