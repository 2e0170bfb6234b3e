/** The credentials of a request, and a cluster that refuses them. */
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Type } from 'typebox';
import {
  issueServerCertificate,
  openCertificateAuthority,
  type CertificateAuthority,
} from '../../../lib/tls.ts';
import { createKube } from './client.ts';
import { NoCredentials, type Issued } from './credential-plugin.ts';
import { readKubeconfig, type Connection, type Credential } from './kubeconfig.ts';

let directory: string;
let authority: CertificateAuthority;
let server: Server;
let accepted = 'Bearer 1';
let asked: (string | undefined)[] = [];

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hd-'));
  authority = await openCertificateAuthority(directory);
  const { certificatePem, keyPem } = await issueServerCertificate(authority, ['127.0.0.1']);
  server = createServer({ cert: certificatePem, key: keyPem }, (request, response) => {
    const { authorization } = request.headers;
    asked.push(authorization);
    response.writeHead(authorization === accepted ? 200 : 401).end('{"message":"Unauthorized"}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(async () => {
  server.close();
  server.closeAllConnections();
  await rm(directory, { recursive: true });
});
beforeEach(() => {
  asked = [];
  accepted = 'Bearer 1';
});

const address = (): string => {
  const found = server.address();
  return `https://127.0.0.1:${typeof found === 'object' ? found?.port : ''}`;
};

const read = (credential: Credential): Promise<unknown> =>
  readBy({
    server: new URL(address()),
    authorityPem: authority.certificatePem,
    serverName: null,
    credential,
  });

async function readBy(connection: Connection): Promise<unknown> {
  const kube = createKube(connection);
  try {
    return await kube.read('/version', Type.Unknown());
  } finally {
    kube.close();
  }
}

const issued = (token: string): Issued => ({ token, certificate: null, expiresMs: Infinity });

/** A program that prints the next of these tokens when the one before is refused. */
function program(...tokens: string[]): Credential {
  const all = tokens.map(issued);
  let at = 0;
  return {
    kind: 'program',
    read: async () => all[at] ?? Promise.reject(new NoCredentials('/bin/aws ended with code 1')),
    refuse: (refused) => {
      if (refused === all[at]) at += 1;
    },
  };
}

test('a region with a program in its kubeconfig answers', async () => {
  const path = join(directory, 'get-token');
  const apiVersion = 'client.authentication.k8s.io/v1';
  const printed = { apiVersion, kind: 'ExecCredential', status: { token: 'of-a-program' } };
  await writeFile(path, `#!/bin/sh\necho '${JSON.stringify(printed)}'\n`);
  await chmod(path, 0o755);
  const authorityData = Buffer.from(authority.certificatePem).toString('base64');
  const kubeconfig = {
    'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'c', user: 'u' } }],
    clusters: [
      {
        name: 'c',
        cluster: { server: address(), 'certificate-authority-data': authorityData },
      },
    ],
    users: [
      { name: 'u', user: { exec: { apiVersion, command: 'get-token', interactiveMode: 'Never' } } },
    ],
  };
  accepted = 'Bearer of-a-program';
  await readBy(readKubeconfig(JSON.stringify(kubeconfig), null, [path]));
  expect(asked).toEqual([accepted]);
});

test('a request shows the token of a program', async () => {
  await read(program('1'));
  expect(asked).toEqual(['Bearer 1']);
});

test('a request whose token is refused is sent once more, with another one', async () => {
  accepted = 'Bearer 2';
  await read(program('1', '2', '3'));
  expect(asked).toEqual(['Bearer 1', 'Bearer 2']);
  asked = [];
  await expect(read(program('7', '8', '9'))).rejects.toMatchObject({ status: 401 });
  expect(asked).toEqual(['Bearer 7', 'Bearer 8']);
});

test('a program that has no other token leaves the refusal of the cluster', async () => {
  const only = issued('7');
  const same: Credential = { kind: 'program', read: async () => only, refuse: () => undefined };
  await expect(read(same)).rejects.toMatchObject({ status: 401 });
  expect(asked).toEqual(['Bearer 7']);
});

test('a program that fails is no answer of the cluster, with the reason in words', async () => {
  const failure = {
    status: null,
    message:
      'the cluster cannot answer /version: no credentials for it: /bin/aws ended with code 1',
  };
  await expect(read(program())).rejects.toMatchObject(failure);
  expect(asked).toEqual([]);
  await expect(read(program('7'))).rejects.toMatchObject(failure);
  expect(asked).toEqual(['Bearer 7']);
});

test('a token of a kubeconfig that is refused is not shown again', async () => {
  const token: Credential = { kind: 'token', read: async () => '7\n' };
  await expect(read(token)).rejects.toMatchObject({ status: 401 });
  expect(asked).toEqual(['Bearer 7']);
});
