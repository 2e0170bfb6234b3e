import 'reflect-metadata';
import { createPrivateKey, webcrypto, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import { duplexPair } from 'node:stream';
import { connect, TLSSocket } from 'node:tls';
import {
  BasicConstraintsExtension,
  X509Certificate as PeculiarCertificate,
  SubjectKeyIdentifierExtension,
  X509CertificateGenerator,
  Name,
} from '@peculiar/x509';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  isIssuedBy,
  issueClientCertificate,
  issueServerCertificate,
  makeAuthority,
  LEAF_DAYS,
  isPair,
  needsRenewal,
  openCertificateAuthority,
  RENEW_BEFORE_DAYS,
  type CertificateAuthority,
  type ServerCertificate,
} from './tls.ts';

const DAY_MS = 86_400_000;
const HOSTS = ['db.example.com', 'localhost', '127.0.0.1', '::1'];

let directory: string;
let authority: CertificateAuthority;
let other: CertificateAuthority;
let leaf: ServerCertificate;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hd-tls-'));
  authority = await openCertificateAuthority(join(directory, 'ca'));
  other = await openCertificateAuthority(join(directory, 'other'));
  leaf = await issueServerCertificate(authority, HOSTS);
});
afterAll(async () => rm(directory, { recursive: true }));

/**
 * Shakes hands with a server that holds the certificate.
 *
 * @returns null, or why the client refused it
 */
async function refusalOf(
  certificate: ServerCertificate,
  ca: string,
  host: string,
): Promise<string | null> {
  const [serverSide, clientSide] = duplexPair();
  const server = new TLSSocket(serverSide, {
    isServer: true,
    cert: certificate.certificatePem,
    key: certificate.keyPem,
  });
  server.on('error', () => undefined);
  const client = connect({ socket: clientSide, ca, host });
  try {
    await once(client, 'secureConnect');
    return null;
  } catch (error) {
    return error instanceof Error && 'code' in error
      ? `${String(error.code)}: ${error.message}`
      : String(error);
  } finally {
    client.destroy();
    server.destroy();
  }
}

test('a certificate is trusted by its authority under each of its names only', async () => {
  for (const host of HOSTS.filter((one) => !isIPv6(one)))
    expect(await refusalOf(leaf, authority.certificatePem, host), host).toBeNull();
  for (const host of ['example.com', 'x.db.example.com', '127.0.0.2'])
    expect(await refusalOf(leaf, authority.certificatePem, host), host).toMatch(
      /^ERR_TLS_CERT_ALTNAME_INVALID/,
    );
  expect(await refusalOf(leaf, other.certificatePem, 'localhost')).not.toBeNull();
  // Debian's Node (20.19.2+dfsg-1+deb13u3) refuses every IPv6 address, as it has no ASCII form of
  // it; OpenSSL does not.
  const certificate = new X509Certificate(leaf.certificatePem);
  expect([certificate.checkIP('::1'), certificate.checkIP('::2')]).toEqual(['::1', undefined]);
});

test('a client has a certificate of an authority of Go, for clients only', async () => {
  const { certificatePem, keyPem } = await makeAuthority();
  const sec1 = createPrivateKey(keyPem).export({ type: 'sec1', format: 'pem' }).toString();
  expect(sec1).toMatch(/^-----BEGIN EC PRIVATE KEY-----/);
  const issued = await issueClientCertificate({ certificatePem, keyPem: sec1 }, 's-1-pooler');
  const certificate = new X509Certificate(issued.certificatePem);
  expect(isPair(issued)).toBe(true);
  expect(certificate.subject).toBe('CN=s-1-pooler');
  expect(certificate.keyUsage).toEqual(['1.3.6.1.5.5.7.3.2']); // clientAuth
  expect(isIssuedBy({ certificatePem }, issued.certificatePem)).toBe(true);
  expect(isIssuedBy(other, issued.certificatePem)).toBe(false);
  expect(isIssuedBy({ certificatePem }, 'damaged')).toBe(false);
});

test('a certificate has its issuer, key, purpose and times', () => {
  const ca = new X509Certificate(authority.certificatePem);
  const certificate = new X509Certificate(leaf.certificatePem);
  expect(ca.ca).toBe(true);
  expect(certificate.ca).toBe(false);
  expect(certificate.checkIssued(ca)).toBe(true);
  expect(certificate.verify(ca.publicKey)).toBe(true);
  expect(certificate.verify(new X509Certificate(other.certificatePem).publicKey)).toBe(false);
  expect(certificate.publicKey.asymmetricKeyDetails).toEqual({ namedCurve: 'prime256v1' });
  expect(certificate.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1']); // serverAuth
  expect(certificate.serialNumber).toMatch(/^[4-7][0-9A-F]{31}$/);
  const days = (Date.parse(certificate.validTo) - Date.now()) / DAY_MS;
  expect(days).toBeGreaterThan(LEAF_DAYS - 1);
  expect(days).toBeLessThanOrEqual(LEAF_DAYS);
  expect(Date.parse(certificate.validFrom)).toBeLessThan(Date.now() - 60_000);
});

test('a certificate names its authority as that names itself and its key', async () => {
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const made = await X509CertificateGenerator.createSelfSigned(
    {
      name: new Name([{ CN: [{ utf8String: 'Howdah CA' }] }]),
      keys,
      signingAlgorithm: ALGORITHM,
      // No hash that we would take.
      extensions: [
        new BasicConstraintsExtension(true),
        new SubjectKeyIdentifierExtension('0a'.repeat(20)),
      ],
    },
    webcrypto,
  );
  const der = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey));
  const base64 = der.toString('base64');
  const keyPem = `-----BEGIN PRIVATE KEY-----\n${base64}\n-----END PRIVATE KEY-----\n`;
  const ca = { certificatePem: made.toString('pem'), keyPem };
  const issued = await issueServerCertificate(ca, HOSTS);
  const { certificatePem } = issued;
  expect(await refusalOf(issued, ca.certificatePem, 'localhost')).toBeNull();
  const bytes = (name: Name): string => Buffer.from(name.toArrayBuffer()).toString('hex');
  // A UTF8String is 0x0c, and the library writes text as a PrintableString, 0x13.
  expect(bytes(made.subjectName)).toMatch(/0c09486f77646168204341$/);
  expect(bytes(new PeculiarCertificate(certificatePem).issuerName)).toBe(bytes(made.subjectName));
});

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

test('renewal: in the last 30 days, for another host, for another authority', () => {
  const end = Date.parse(new X509Certificate(leaf.certificatePem).validTo);
  const at = (ms: number, ca = authority, hosts: readonly string[] = HOSTS) =>
    needsRenewal(leaf.certificatePem, ca, hosts, ms);
  expect(needsRenewal(leaf.certificatePem, authority, HOSTS)).toBe(false);
  expect(at(Date.now() - 10 * 86_400_000), 'made while the clock was ahead').toBe(true);
  expect(at(end - RENEW_BEFORE_DAYS * DAY_MS)).toBe(false);
  expect(at(end - RENEW_BEFORE_DAYS * DAY_MS + 1)).toBe(true);
  expect(at(end + DAY_MS)).toBe(true);
  expect(at(Date.now(), authority, ['localhost'])).toBe(false);
  expect(at(Date.now(), authority, [...HOSTS, 'new.example.com'])).toBe(true);
  expect(at(Date.now(), authority, [...HOSTS, '192.0.2.1'])).toBe(true);
  expect(at(Date.now(), other)).toBe(true);
});

test('a certificate without its own key, or half written, is none', async () => {
  const another = await issueServerCertificate(authority, HOSTS);
  expect(isPair(leaf)).toBe(true);
  expect(isPair({ certificatePem: another.certificatePem, keyPem: leaf.keyPem })).toBe(false);
  expect(isPair({ ...leaf, certificatePem: leaf.certificatePem.slice(0, 100) })).toBe(false);
  expect(isPair({ ...leaf, keyPem: '' })).toBe(false);
});

test('the authority is made once, its key closed to others', async () => {
  expect(await openCertificateAuthority(join(directory, 'ca'))).toEqual(authority);
  const mode = async (path: string) =>
    ((await stat(join(directory, path))).mode & 0o777).toString(8);
  expect([await mode('ca'), await mode('ca/ca.key'), await mode('ca/ca.pem')]).toEqual([
    '700',
    '600',
    '644',
  ]);
  expect(other.certificatePem).not.toBe(authority.certificatePem);
});

test('an authority that was half written is recreated', async () => {
  const half = join(directory, 'half');
  const first = await openCertificateAuthority(half);
  await rm(join(half, 'ca.pem'));
  const second = await openCertificateAuthority(half);
  expect(second.keyPem).not.toBe(first.keyPem);
  expect(
    await refusalOf(
      await issueServerCertificate(second, ['localhost']),
      second.certificatePem,
      'localhost',
    ),
  ).toBeNull();
});
