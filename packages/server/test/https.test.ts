/** The API beyond one machine: TLS, proxies, and what one address may take of it. */
import { once } from 'node:events';
import { X509Certificate } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, request } from 'node:https';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterEach, expect, test } from 'vitest';
import { openApiTls } from '../test-kubernetes/probe.ts';
import { install, makeHome, type Installation } from './harness.ts';
import {
  issueServerCertificate,
  openCertificateAuthority,
  createRounds,
  QUIET,
  TUNING,
} from './probe.ts';
import { untilExpected } from './until.ts';

let cloud: Installation | undefined;
afterEach(async () => {
  const problems = await cloud?.destroy();
  cloud = undefined;
  expect(problems ?? []).toEqual([]);
});

/** A GET by TLS, with the certificate checked against a CA. */
async function get(
  port: number,
  path: string,
  ca: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    request(
      { host: '127.0.0.1', port, path, ca, headers, agent: false, servername: 'localhost' },
      (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (text: string) => (body += text));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
      },
    )
      .on('error', reject)
      .end();
  });
}

/** All that comes back for a request as bytes, until the other side ends it. */
async function plain(port: number, host = '127.0.0.1'): Promise<string> {
  const socket = connect(port, host);
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  socket.on('error', () => undefined);
  socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
  await once(socket, 'close');
  return text;
}

test('beyond this machine the API speaks TLS by itself, and the command line follows', async () => {
  cloud = await install({ HOWDAH_HOST: '0.0.0.0' });
  expect(cloud.apiUrl).toBe(`https://127.0.0.1:${cloud.port}/public/api/v1`);
  const ca = await cloud.caPem();
  expect(await get(cloud.port, '/healthz', ca)).toEqual({
    status: 200,
    body: expect.stringMatching(/^\{"status":"ok","version":"[0-9.]+"\}$/),
  });
  expect(
    (await get(cloud.port, '/public/api/v1/projects', ca, { Authorization: `Bearer ${cloud.key}` }))
      .status,
  ).toBe(200);
  await expect(get(cloud.port, '/healthz', '')).rejects.toThrow(/certificate/);
  expect(await plain(cloud.port)).not.toContain('200');
  const old = connectTls({
    port: cloud.port,
    host: '127.0.0.1',
    ca,
    maxVersion: 'TLSv1.1',
    minVersion: 'TLSv1',
    ciphers: 'DEFAULT@SECLEVEL=0',
  });
  await expect(once(old, 'secureConnect')).rejects.toThrow();
  expect(await cloud.cli('service', 'list')).toMatchObject({ code: 0, stderr: '' });
  expect((await cloud.cli('status')).stdout).toContain('https://');
  const key =
    (await cloud.cli('key', 'create', '--name', 'x', '--role', 'viewer')).stdout
      .trim()
      .split(/\s+/)
      .at(-1) ?? '';
  expect(await cloud.cli('key', 'revoke', key.split(':')[0] ?? '')).toMatchObject({
    code: 0,
    stdout: '',
  });
});

test('with a certificate of one’s own; with files that are none it says so', async () => {
  const home = await makeHome();
  const authority = await openCertificateAuthority(join(home, 'elsewhere'));
  const pair = await issueServerCertificate(authority, ['localhost']);
  const [certificate, key] = [join(home, 'api.pem'), join(home, 'api.key')];
  await writeFile(certificate, pair.certificatePem);
  await writeFile(key, pair.keyPem, { mode: 0o600 });
  const settings = {
    HOWDAH_HOME: home,
    HOWDAH_TLS_CERT: certificate,
    HOWDAH_TLS_KEY: key,
    HOWDAH_PUBLIC_HOST: 'localhost',
  };
  cloud = await install(settings);
  expect(cloud.apiUrl).toContain('https://localhost:');
  expect((await get(cloud.port, '/healthz', authority.certificatePem)).status).toBe(200);
  await expect(get(cloud.port, '/healthz', await cloud.caPem())).rejects.toThrow(/certificate/);
  await cloud.stop('SIGTERM');
  await writeFile(key, await readFile(certificate));
  const { code, stderr } = await cloud.cli('up');
  expect({ code, stderr }).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('HOWDAH_TLS_CERT'),
  });
  await writeFile(key, pair.keyPem);
  await cloud.up();
});

test('files that are renewed are taken up without a restart; broken ones are not', async () => {
  const home = await makeHome();
  const authority = await openCertificateAuthority(join(home, 'ca'));
  const files = { certificate: join(home, 'api.pem'), key: join(home, 'api.key') };
  const renew = async (): Promise<string> => {
    const pair = await issueServerCertificate(authority, ['localhost']);
    await writeFile(files.certificate, pair.certificatePem);
    await writeFile(files.key, pair.keyPem);
    return new X509Certificate(pair.certificatePem).serialNumber;
  };
  const first = await renew();
  const tls = await openApiTls({ on: true, files }, [], authority);
  const { certificatePem: cert, keyPem: key } = tls.current();
  const server = createServer({ cert, key }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const warned: string[] = [];
  const log = { ...QUIET, warn: (_: object, text: string) => void warned.push(text) };
  const rounds = createRounds({ ...TUNING.rounds, apiCertificates: { everyMs: 10 } }, log);
  const stop = tls.keepCurrent(server, rounds);
  const shown = async (): Promise<string> => {
    const address = server.address();
    const socket = connectTls({
      port: typeof address === 'object' && address !== null ? address.port : 0,
      host: '127.0.0.1',
      rejectUnauthorized: false,
    });
    await once(socket, 'secureConnect');
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  try {
    expect(await shown()).toBe(first);
    const second = await renew();
    await untilExpected('the second certificate is shown', async () =>
      expect(await shown()).toBe(second),
    );
    await writeFile(files.key, 'half of it');
    await untilExpected('the broken key is reported', () =>
      expect(warned.length).toBeGreaterThan(0),
    );
    expect(await shown()).toBe(second);
    const third = await renew();
    await untilExpected('the third certificate is shown', async () =>
      expect(await shown()).toBe(third),
    );
  } finally {
    await stop();
    server.close();
    await rm(home, { recursive: true });
  }
});

test('off is off, and said', { tags: 'slow' }, async () => {
  cloud = await install({ HOWDAH_HOST: '0.0.0.0', HOWDAH_TLS: 'off' });
  expect(cloud.apiUrl).toContain('http://');
  expect(await plain(cloud.port)).toContain('200 OK');
  await untilExpected('the warning is printed', () =>
    expect(cloud?.output.join('')).toContain('sent unencrypted'),
  );
});

test(
  'an address may have so many connections; a proxy that is trusted any number',
  { tags: 'slow' },
  async () => {
    cloud = await install({ HOWDAH_CONNECTIONS_PER_ADDRESS: '20', HOWDAH_HOST: '127.0.0.1' });
    const { port } = cloud;
    const open = async (): Promise<Socket> => {
      const socket = connect(port, '127.0.0.1').on('error', () => undefined);
      await once(socket, 'connect');
      return socket;
    };
    // Connections that the test's own client keeps open count too: connect until one is refused.
    const sockets: Socket[] = [];
    for (let more = 0; more < 25; more++) sockets.push(await open());
    expect(await plain(port)).toMatch(
      /^HTTP\/1\.1 429 [^]*"RATE_LIMITED"[^]*"message":"this address has 20/,
    );
    // Others are not hurt: another address of this machine gets through.
    const other = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' }).on(
      'error',
      () => undefined,
    );
    other.write('GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    const [answer] = await once(other, 'data');
    expect(String(answer)).toContain('200 OK');
    for (const socket of sockets) socket.destroy();
    await untilExpected('the address may connect again', async () =>
      expect(await plain(port)).toContain('200 OK'),
    );
  },
);

test('wrong keys of an address end in 429, valid ones never, also behind a proxy', async () => {
  cloud = await install({
    HOWDAH_FAILED_KEYS_PER_MINUTE: '5',
    HOWDAH_TRUSTED_PROXIES: '127.0.0.0/8',
  });
  const { apiUrl, key } = cloud;
  const call = async (bearer: string, from: string) =>
    fetch(`${apiUrl}/projects`, {
      headers: { Authorization: `Bearer ${bearer}`, 'X-Forwarded-For': from },
    });
  const statuses: number[] = [];
  for (let tries = 0; tries < 8; tries++)
    statuses.push((await call('HDno:wrong', '192.0.2.1')).status);
  expect(statuses).toEqual([401, 401, 401, 401, 401, 429, 429, 429]);
  const refused = await call('HDno:wrong', '192.0.2.1');
  expect(refused.headers.get('retry-after')).toBe('60');
  expect(await refused.json()).toMatchObject({
    code: 'RATE_LIMITED',
    message: expect.stringContaining('192.0.2.1'),
  });
  expect((await call(key, '192.0.2.1')).status).toBe(200);
  expect((await call('HDno:wrong', '192.0.2.2')).status).toBe(401);
});
