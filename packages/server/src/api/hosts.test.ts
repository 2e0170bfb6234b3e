import Fastify from 'fastify';
import { expect, test } from 'vitest';
import { createHostCheck, namesOf } from './hosts.ts';
import { issueServerCertificate, openCertificateAuthority } from '../lib/tls.ts';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

async function answer(
  host: string | undefined,
  url = '/x',
  authorization?: string,
): Promise<number> {
  const app = Fastify();
  app.addHook('onRequest', createHostCheck(['db.example.com', '*.example.org']));
  for (const path of ['/x', '/healthz', '/readyz', '/metrics']) app.get(path, async () => 'ok');
  const headers = {
    ...(host === undefined ? {} : { host }),
    ...(authorization === undefined ? {} : { authorization }),
  };
  const { statusCode } = await app.inject({ url, headers });
  await app.close();
  return statusCode;
}

test('addresses and names of the installation are taken', async () => {
  for (const host of [
    'localhost',
    'LOCALHOST:8080',
    'localhost.',
    'howdah.localhost:8080',
    '127.0.0.1:8080',
    '192.0.2.7',
    '[::1]:8080',
    '[2001:db8::1]',
    'db.example.com:8080',
    'DB.example.com.',
    'a.example.org',
  ])
    expect(await answer(host), host).toBe(200);
});

test('other names are refused, but for probes and calls with a key', async () => {
  for (const host of [
    'evil.example',
    'db.example.com.evil.example:8080',
    'localhost.evil.example',
    'a.b.example.org',
    'example.org',
    '127.0.0.1.nip.io',
  ])
    for (const url of ['/x', '/metrics'])
      expect(await answer(host, url), `${host}${url}`).toBe(500);
  for (const url of ['/healthz', '/readyz'])
    expect(await answer('probe.internal:8080', url)).toBe(200);
  expect(await answer('evil.example', '/x', 'Bearer a:b')).toBe(200);
});

test('the names of a certificate', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'hd-names-'));
  const certificate = await issueServerCertificate(await openCertificateAuthority(directory), [
    'db.example.com',
    '192.0.2.7',
    '*.example.org',
  ]);
  expect(namesOf(certificate.certificatePem)).toEqual(['db.example.com', '*.example.org']);
  await rm(directory, { recursive: true });
});
