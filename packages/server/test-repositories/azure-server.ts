/**
 * Azurite, Microsoft's own server of the protocol of Azure Blob Storage, over TLS with a
 * certificate of an authority of its own.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { join } from 'node:path';
import { issueServerCertificate, openCertificateAuthority } from '../test/probe.ts';
import { words, type CloudServer } from './cloud-server.ts';
import { HOST, startTlsServer } from './tls-server.ts';

const [ACCOUNT, CONTAINER, VERSION] = ['testaccount', 'backups', '2021-06-08'];

/**
 * @param directory its own
 * @param access what the installation gets: a key of the account, or a shared access signature
 */
export async function startAzure(
  directory: string,
  access: 'shared' | 'sas' = 'shared',
): Promise<CloudServer> {
  const authority = await openCertificateAuthority(join(directory, 'ca'));
  await openCertificateAuthority(join(directory, 'other-ca'));
  const key = randomBytes(64).toString('base64');
  const data = join(directory, 'data');
  await mkdir(data);
  const { port, start, stop } = await startTlsServer({
    name: 'azurite-blob',
    directory,
    certificate: await issueServerCertificate(authority, [HOST]),
    args: ({ port: listener, certificate, key: keyFile }) => {
      const place = { blobHost: HOST, blobPort: String(listener), location: data };
      return words({ ...place, cert: certificate, key: keyFile, silent: '', disableTelemetry: '' });
    },
    env: { AZURITE_ACCOUNTS: `${ACCOUNT}:${key}` },
    // Azurite notes every few seconds which blobs there are: killed, it loses the newest.
    endsBy: 'SIGTERM',
  });
  await createContainer(port, key, authority.certificatePem);
  const [keyFile, otherKey] = [join(directory, 'key'), join(directory, 'other-key')];
  const other = randomBytes(64).toString('base64');
  const given = (of: string): string => (access === 'sas' ? signatureFor(of) : of);
  await writeFile(keyFile, given(key));
  await writeFile(otherKey, given(other));
  return {
    start,
    stop,
    options: (more = {}) =>
      words({
        azure: ACCOUNT,
        endpoint: `https://${HOST}:${port}`,
        container: CONTAINER,
        'uri-style': 'path',
        'key-file': keyFile,
        'ca-file': join(directory, 'ca', 'ca.pem'),
        ...(access === 'sas' ? { sas: '' } : {}),
        ...more,
      }),
    wrong: [
      // A signature is of its container: any other is refused, whether there is one or not.
      [
        { container: 'none' },
        access === 'sas'
          ? /refuses the credentials/
          : /the container none does not exist; create it/,
      ],
      [{ 'key-file': otherKey }, /refuses the credentials/],
      [
        { 'ca-file': join(directory, 'other-ca', 'ca.pem') },
        /certificate of its server is not valid/,
      ],
    ],
  };
}

const sign = (key: string, text: string): string =>
  createHmac('sha256', Buffer.from(key, 'base64')).update(text).digest('base64');

/**
 * A signature for the container: read, add, create, write, delete and list, for a day, over HTTPS.
 * By Azure's documentation ("Create a service SAS").
 */
function signatureFor(key: string): string {
  const expiry = new Date(Date.now() + 86_400_000).toISOString().replace(/\.\d+Z$/, 'Z');
  const [permissions, protocol, resource] = ['racwdl', 'https', 'c'];
  const [canonical, none] = [`/blob/${ACCOUNT}/${CONTAINER}`, ''];
  const fields = [permissions, none, expiry, canonical, none, none, protocol, VERSION, resource];
  // No snapshot, no encryption scope, no headers of answers.
  const text = [...fields, ...Array<string>(7).fill(none)].join('\n');
  return new URLSearchParams({
    sv: VERSION,
    sr: resource,
    sp: permissions,
    se: expiry,
    spr: protocol,
    sig: sign(key, text),
  }).toString();
}

/** By the request of Azure's documentation, with a key of the account. */
async function createContainer(port: number, key: string, ca: string): Promise<void> {
  const date = new Date().toUTCString();
  const headers = `x-ms-date:${date}\nx-ms-version:${VERSION}\n`;
  // The other lines of a signature are headers that this request does not have.
  const resource = `/${ACCOUNT}/${ACCOUNT}/${CONTAINER}\nrestype:container`;
  const signed = `PUT${'\n'.repeat(12)}${headers}${resource}`;
  const signature = sign(key, signed);
  const status = await new Promise((resolve, reject) => {
    request({
      host: HOST,
      port,
      ca,
      method: 'PUT',
      path: `/${ACCOUNT}/${CONTAINER}?restype=container`,
      headers: {
        'x-ms-date': date,
        'x-ms-version': VERSION,
        'content-length': '0',
        authorization: `SharedKey ${ACCOUNT}:${signature}`,
      },
    })
      .on('response', (answer) => resolve(answer.resume().statusCode))
      .on('error', reject)
      .end();
  });
  if (status !== 201) throw new Error(`no container: ${String(status)}`);
}
