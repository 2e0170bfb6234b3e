/**
 * fake-gcs-server, behind a server that does what it does not: TLS with a certificate of an
 * authority of its own, tokens for the key of a service account, and the header that names an
 * upload in parts.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createVerify, generateKeyPairSync, randomBytes, type KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { request, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { claimPorts } from '../test/harness.ts';
import { issueServerCertificate, openCertificateAuthority } from '../test/probe.ts';
import { words, type CloudServer } from './cloud-server.ts';
import { close, HOST, listen, repositoryServer } from './tls-server.ts';
import { until } from '../test/until.ts';

const BUCKET = 'backups';

/** @param directory its own */
export async function startGcs(directory: string): Promise<CloudServer> {
  const authority = await openCertificateAuthority(join(directory, 'ca'));
  await openCertificateAuthority(join(directory, 'other-ca'));
  const { certificatePem, keyPem } = await issueServerCertificate(authority, [HOST]);
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const program = await startProgram(directory);
  const front = { publicKey, token: randomBytes(16).toString('hex'), port: program.port };
  const server = createServer({ cert: certificatePem, key: keyPem }, (incoming, response) => {
    void answer(front, incoming, response).catch(() => response.destroy());
  });
  const port = await listen(server);
  const { privateKey: other } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const keyFiles = [join(directory, 'key.json'), join(directory, 'other-key.json')] as const;
  for (const [file, key] of [
    [keyFiles[0], privateKey],
    [keyFiles[1], other],
  ] as const)
    await writeFile(file, accountKey(key, port));
  return {
    start: async () => {
      await program.start();
      await listen(server, port);
    },
    stop: async () => {
      server.closeAllConnections();
      await close(server);
      await program.stop();
    },
    options: (more = {}) =>
      words({
        gcs: '',
        endpoint: `https://${HOST}:${port}`,
        bucket: BUCKET,
        'key-file': keyFiles[0],
        'ca-file': join(directory, 'ca', 'ca.pem'),
        ...more,
      }),
    wrong: [
      [{ bucket: 'none' }, /the bucket none does not exist; create it/],
      [{ 'key-file': keyFiles[1] }, /refuses the credentials/],
      [
        { 'ca-file': join(directory, 'other-ca', 'ca.pem') },
        /certificate of its server is not valid/,
      ],
    ],
  };
}

/** The file that Google makes for a service account, with the fields that are used. */
const accountKey = (key: KeyObject, port: number): string =>
  JSON.stringify({
    type: 'service_account',
    client_email: 'howdah@test.iam.gserviceaccount.com',
    private_key: key.export({ type: 'pkcs8', format: 'pem' }),
    token_uri: `https://${HOST}:${port}/token`,
  });

async function startProgram(directory: string) {
  const program = await repositoryServer('fake-gcs-server');
  const port = await claimPorts();
  const root = join(directory, 'data');
  await mkdir(root);
  const url = `http://${HOST}:${port}`;
  let child: ChildProcess | null = null;
  const start = async (): Promise<void> => {
    const listener = { scheme: 'http', host: HOST, port: String(port) };
    const args = words({ ...listener, 'filesystem-root': root });
    const begun = spawn(program, args, { stdio: 'ignore' });
    child = begun;
    await until(
      'fake-gcs-server answers',
      async () => begun.exitCode !== null || (await fetch(`${url}/_internal/healthcheck`)).ok,
    );
    if (begun.exitCode !== null) throw new Error(`fake-gcs-server ended with ${begun.exitCode}`);
  };
  await start();
  const made = await fetch(`${url}/storage/v1/b`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: BUCKET }),
  });
  if (!made.ok) throw new Error(`no bucket: ${made.status}`);
  return {
    port,
    start,
    stop: async (): Promise<void> => {
      if (child === null || child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    },
  };
}

type Front = { publicKey: KeyObject; token: string; port: number };

async function answer(
  front: Front,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const url = new URL(incoming.url ?? '', `https://${HOST}`);
  if (url.pathname === '/token') return answerToken(front, incoming, response);
  // The address of an upload in parts is a secret by itself.
  const isPart = incoming.method === 'PUT' && url.searchParams.has('upload_id');
  if (!isPart && incoming.headers.authorization !== `Bearer ${front.token}`)
    return send(response, 401, { error: { code: 401, message: 'Invalid Credentials' } });
  const { method, url: path, headers } = incoming;
  const onward = request({ host: HOST, port: front.port, method, path, headers }, (found) => {
    const upload = /[?&]upload_id=([^&]+)/.exec(found.headers.location ?? '')?.[1];
    const named = upload === undefined ? {} : { 'x-guploader-uploadid': upload };
    response.writeHead(found.statusCode ?? 500, { ...found.headers, ...named });
    found.pipe(response);
  }).on('error', () => response.destroy());
  incoming.pipe(onward);
}

/** RFC 7523: a token for a statement that the key of the account has signed. */
async function answerToken(
  { publicKey, token }: Front,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const assertion = new URLSearchParams(await text(incoming)).get('assertion') ?? '';
  const [header = '', claims = '', signature = ''] = assertion.split('.');
  const isValid = createVerify('RSA-SHA256')
    .update(`${header}.${claims}`)
    .verify(publicKey, signature, 'base64url');
  if (isValid) send(response, 200, { access_token: token, token_type: 'Bearer', expires_in: 3600 });
  else send(response, 400, { error: 'invalid_grant', error_description: 'Invalid JWT Signature.' });
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
