/** An S3 server for tests, which answers by a function. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { issueServerCertificate, openCertificateAuthority } from '../../../lib/tls.ts';
import type { ObjectStore } from '../../object-store.ts';

export const STORE = {
  id: 'store12345',
  sinceMs: 0,
  endpoint: 'https://s3.amazonaws.com',
  bucket: 'examplebucket',
  region: 'us-east-1',
  keyId: 'AKIAIOSFODNN7EXAMPLE',
  key: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
  caPem: null,
};

/** An answer that lists objects. */
export const listOf = (objects: string): string =>
  `<ListBucketResult>${objects}</ListBucketResult>`;

/** Runs work with a store that answers by a function. */
export async function withStore(
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
