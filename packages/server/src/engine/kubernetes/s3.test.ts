import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { issueServerCertificate, openCertificateAuthority } from '../../lib/tls.ts';
import type { ObjectStore } from '../object-store.ts';
import { keysIn, removeSome, signed, sizeOf, StoreError, tryStore } from './s3.ts';

const STORE = {
  id: 'store12345',
  sinceMs: 0,
  endpoint: 'https://s3.amazonaws.com',
  bucket: 'examplebucket',
  region: 'us-east-1',
  keyId: 'AKIAIOSFODNN7EXAMPLE',
  key: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
  caPem: null,
};
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

/** Runs work with a store that answers by a function. */
async function withServer(
  answer: RequestListener,
  work: (store: ObjectStore) => Promise<void>,
): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const authority = await openCertificateAuthority(directory);
  const { certificatePem, keyPem } = await issueServerCertificate(authority, ['127.0.0.1']);
  const server = createServer({ cert: certificatePem, key: keyPem }, answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const endpoint = `https://127.0.0.1:${address.port}`;
  try {
    await work({ ...STORE, endpoint, caPem: authority.certificatePem });
  } finally {
    server.close();
    server.closeAllConnections();
    await rm(directory, { recursive: true });
  }
}

test('the size of a folder is that of the objects of all pages', async () => {
  const tokens: (string | null)[] = [];
  await withServer(
    ({ url }, answer) => {
      const token = new URL(url ?? '', 'https://h').searchParams.get('continuation-token');
      tokens.push(token);
      const next = '<NextContinuationToken>a&amp;b</NextContinuationToken>';
      const size = token === null ? 5_000_000_000 : 7;
      answer.end(`<Contents><Size>${size}</Size></Contents>${token === null ? next : ''}`);
    },
    async (store) => expect(await sizeOf(store, 'f/s-a')).toBe(5_000_000_007),
  );
  expect(tokens).toEqual([null, 'a&b']);
});

test('objects of a folder are removed by their names, and others stay', async () => {
  const keys = new Set(['f/s-a/1', 'f/s-a/../s-b/2', 'f/s-b/3']);
  const asked: string[] = [];
  await withServer(
    ({ method, url }, answer) => {
      const list = [...keys].map((key) => `<Key>${key}</Key>`).join('');
      if (method === 'GET') return answer.end(list);
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

test.each(['https://127.0.0.1:99999', 'https://999.999.999.999'])(
  'an address that is none is a problem: %s',
  async (endpoint) => {
    await expect(tryStore({ ...STORE, endpoint })).rejects.toThrow(StoreError);
  },
);
