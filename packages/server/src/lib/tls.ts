/**
 * The installation's certificate authority and the server certificates it signs. Keys are P-256,
 * files 0600. The library and its polyfill take a tenth of a second to load, so they are loaded
 * when the first certificate is made.
 */
import { createPrivateKey, randomBytes, webcrypto, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import type { Extension } from '@peculiar/x509';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeDurably } from './durable-files.ts';

const DAY_MS = 86_400_000;
const CA_DAYS = 3650;
/** Certificates live this long and are renewed this long before they end. */
export const LEAF_DAYS = 90;
export const RENEW_BEFORE_DAYS = 30;

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;

export type CertificateAuthority = { certificatePem: string; keyPem: string };
export type ServerCertificate = { certificatePem: string; keyPem: string };

/** Reads the installation's CA, or creates one at the first start. */
export async function openCertificateAuthority(directory: string): Promise<CertificateAuthority> {
  const certificatePath = join(directory, 'ca.pem');
  const keyPath = join(directory, 'ca.key');
  try {
    return {
      certificatePem: await readFile(certificatePath, 'utf8'),
      keyPem: await readFile(keyPath, 'utf8'),
    };
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
  }
  const authority = await makeAuthority();
  await mkdir(directory, { recursive: true, mode: 0o700 });
  // The certificate is written last: after an interrupted start both are created again.
  await writeDurably(keyPath, authority.keyPem, 0o600);
  await writeDurably(certificatePath, authority.certificatePem, 0o644);
  return authority;
}

/** In characters: RFC 5280. Clients read the alternative names. */
const MAX_COMMON_NAME = 64;

/** A certificate for a server reached under these names and addresses. */
export async function issueServerCertificate(
  authority: CertificateAuthority,
  hosts: readonly string[],
): Promise<ServerCertificate> {
  const { x509 } = await signerOf(authority);
  const name = hosts.find(({ length }) => length <= MAX_COMMON_NAME) ?? 'localhost';
  return issue(authority, name, LEAF_DAYS, [
    new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
    new x509.SubjectAlternativeNameExtension(
      hosts.map((host) => ({ type: isIP(host) === 0 ? 'dns' : 'ip', value: host })),
    ),
  ]);
}

/**
 * A certificate for a client, by which an authority that signs nothing else knows it. It lives as
 * long as ours do: the operator renews such an authority with the key that it has.
 */
export async function issueClientCertificate(
  authority: CertificateAuthority,
  name: string,
): Promise<ServerCertificate> {
  const { x509 } = await signerOf(authority);
  return issue(authority, name, CA_DAYS, [
    new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.clientAuth]),
  ]);
}

async function issue(
  authority: CertificateAuthority,
  commonName: string,
  days: number,
  extensions: readonly Extension[],
): Promise<ServerCertificate> {
  const { x509, caKey, ca, authorityKeyIdentifier } = await signerOf(authority);
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: randomSerial(),
    subject: [{ CN: [commonName] }],
    // The name's bytes, not its text: Go compares those, and OpenSSL writes text as another type.
    issuer: ca.subjectName,
    ...validity(days),
    signingAlgorithm: ALGORITHM,
    publicKey: keys.publicKey,
    signingKey: caKey,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      ...extensions,
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      authorityKeyIdentifier,
    ],
  });
  return { certificatePem: certificate.toString('pem'), keyPem: await exportKey(keys.privateKey) };
}

/** The signers of authorities: to read one takes as long as to sign. */
const signers = new WeakMap<CertificateAuthority, ReturnType<typeof readSigner>>();

function signerOf(authority: CertificateAuthority): ReturnType<typeof readSigner> {
  const known = signers.get(authority) ?? readSigner(authority);
  signers.set(authority, known);
  return known;
}

async function readSigner({ keyPem, certificatePem }: CertificateAuthority) {
  const { x509 } = await import('./x509.ts');
  const ca = new x509.X509Certificate(certificatePem);
  return {
    x509,
    ca,
    caKey: await importKey(keyPem),
    // As it names its key itself: Go takes another hash for that since 1.25, and OpenSSL does not
    // find an authority by a name of ours.
    authorityKeyIdentifier: new x509.AuthorityKeyIdentifierExtension(
      (
        ca.getExtension(x509.SubjectKeyIdentifierExtension) ??
        (await x509.SubjectKeyIdentifierExtension.create(ca.publicKey))
      ).keyId,
    ),
  };
}

/** How old a certificate may be that was created ahead. */
const AHEAD_MS = DAY_MS;
/** The next one is created after the work that the last one was for has begun. */
const AHEAD_AFTER_MS = 1000;

/**
 * Certificates for servers under the same names, with one created ahead: it takes 8 ms of CPU, and
 * the first one 160 for the library, which would delay a create.
 */
export function createIssuer(authority: CertificateAuthority, hosts: readonly string[]) {
  let ahead: { madeMs: number; certificate: Promise<ServerCertificate> } | null = null;
  let timer: NodeJS.Timeout | undefined;

  const makeAhead = (): void => {
    const certificate = issueServerCertificate(authority, hosts);
    ahead = { madeMs: Date.now(), certificate };
    // The caller that takes it gets the error; the next one is created again.
    certificate.catch(() => undefined);
  };
  const makeAheadSoon = (): void => {
    clearTimeout(timer);
    timer = setTimeout(makeAhead, AHEAD_AFTER_MS).unref();
  };

  makeAheadSoon();
  return {
    /** @param more names and addresses that this one contains in addition */
    take: async (more: readonly string[] = []): Promise<ServerCertificate> => {
      if (more.length > 0) return issueServerCertificate(authority, [...hosts, ...more]);
      const made = ahead;
      ahead = null;
      makeAheadSoon();
      return made !== null && Date.now() - made.madeMs < AHEAD_MS
        ? made.certificate
        : issueServerCertificate(authority, hosts);
    },
  };
}
export type CertificateIssuer = ReturnType<typeof createIssuer>;

/**
 * Whether a certificate and a key are complete and belong together: after a crash between the two
 * files they do not.
 */
export function isPair({ certificatePem, keyPem }: ServerCertificate): boolean {
  try {
    return new X509Certificate(certificatePem).checkPrivateKey(createPrivateKey(keyPem));
  } catch {
    return false; // one of them was interrupted
  }
}

/** Whether an authority with the same key has issued a certificate; not one that is damaged. */
export function isIssuedBy(
  { certificatePem: authority }: Pick<CertificateAuthority, 'certificatePem'>,
  certificatePem: string,
): boolean {
  const { publicKey } = new X509Certificate(authority);
  try {
    return new X509Certificate(certificatePem).verify(publicKey);
  } catch {
    return false;
  }
}

/** Whether a certificate must be replaced: it ends soon, or has another CA or other hosts. */
export function needsRenewal(
  certificatePem: string,
  authority: CertificateAuthority,
  hosts: readonly string[],
  nowMs = Date.now(),
): boolean {
  const certificate = new X509Certificate(certificatePem);
  const [beginMs, endMs] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
  const covers = hosts.every(
    (host) =>
      (isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)) !== undefined,
  );
  return (
    // A certificate from before the clock was set back is not valid yet.
    nowMs < beginMs ||
    endMs - nowMs < RENEW_BEFORE_DAYS * DAY_MS ||
    !covers ||
    !isIssuedBy(authority, certificatePem)
  );
}

/**
 * A pair that was found current is so for another hour: parsing and verifying it is most of the
 * cost of observing a service.
 */
const CURRENT_FOR_MS = 3_600_000;

/** Whether pairs are complete, and need no renewal for a while. */
export function createCertificateCheck(authority: CertificateAuthority, hosts: readonly string[]) {
  const found = new Map<string, { pair: string; untilMs: number }>();
  return {
    /**
     * @param place where the pair was read
     * @param more names and addresses that it has to contain in addition
     */
    isCurrent: (
      place: string,
      { certificatePem, keyPem }: ServerCertificate,
      more: readonly string[] = [],
    ): boolean => {
      const pair = [certificatePem, keyPem, ...more].join('\n');
      const before = found.get(place);
      const leftMs = (before?.untilMs ?? 0) - Date.now();
      if (before?.pair === pair && leftMs > 0 && leftMs <= CURRENT_FOR_MS) return true;
      found.delete(place);
      if (
        !isPair({ certificatePem, keyPem }) ||
        needsRenewal(certificatePem, authority, [...hosts, ...more])
      )
        return false;
      found.set(place, { pair, untilMs: Date.now() + CURRENT_FOR_MS });
      return true;
    },
    forget: (place: string): void => void found.delete(place),
  };
}

/** A new certificate authority, with a key of its own. */
export async function makeAuthority(): Promise<CertificateAuthority> {
  const { x509 } = await import('./x509.ts');
  const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: randomSerial(),
    name: [{ CN: [`Howdah CA ${randomBytes(4).toString('hex')}`] }],
    ...validity(CA_DAYS),
    signingAlgorithm: ALGORITHM,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(
        x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign,
        true,
      ),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificatePem: certificate.toString('pem'), keyPem: await exportKey(keys.privateKey) };
}

/** Valid since an hour ago, for clients whose clock is behind. */
function validity(days: number): { notBefore: Date; notAfter: Date } {
  const now = Date.now();
  return { notBefore: new Date(now - 3_600_000), notAfter: new Date(now + days * DAY_MS) };
}

/** Positive and at most 20 bytes, as RFC 5280 4.1.2.2 requires. */
function randomSerial(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes.toString('hex');
}

async function exportKey(key: webcrypto.CryptoKey): Promise<string> {
  const der = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', key));
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN PRIVATE KEY-----\n${lines.join('\n')}\n-----END PRIVATE KEY-----\n`;
}

async function importKey(pem: string): Promise<webcrypto.CryptoKey> {
  // That of another program may be in another form.
  const der = createPrivateKey(pem).export({ type: 'pkcs8', format: 'der' });
  return webcrypto.subtle.importKey('pkcs8', der, ALGORITHM, false, ['sign']);
}
