/** The certificate of the API: from files that somebody else renews, or of our own CA. */
import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Server } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { messageOf } from '@howdah/contract/thrown';
import { ConfigError, type Config } from '../config.ts';
import type { Rounds } from '../lib/rounds.ts';
import {
  isPair,
  issueServerCertificate,
  needsRenewal,
  type CertificateAuthority,
  type ServerCertificate,
} from '../lib/tls.ts';

/**
 * @param hosts the names under which the API is reached
 * @throws ConfigError when the files cannot be used
 */
export async function openApiTls(
  { files }: Config['tls'],
  hosts: readonly string[],
  authority: CertificateAuthority,
) {
  const load = async (before: ServerCertificate | null): Promise<ServerCertificate> => {
    if (files !== null) return readPair(files);
    return before !== null && !needsRenewal(before.certificatePem, authority, hosts)
      ? before
      : issueServerCertificate(authority, hosts);
  };
  let current = await load(null);

  return {
    current: () => current,
    /** When a certificate expires that somebody else renews; null: Howdah renews it. */
    expires: (): Date | null =>
      files === null ? null : new Date(new X509Certificate(current.certificatePem).validTo),
    /** Takes up a renewed certificate, without a restart. @returns ends it */
    keepCurrent: (server: Server, rounds: Rounds): (() => Promise<void>) => {
      const look = async (): Promise<void> => {
        const next = await load(current);
        if (next.certificatePem === current.certificatePem || !(server instanceof HttpsServer))
          return;
        server.setSecureContext({ cert: next.certificatePem, key: next.keyPem });
        current = next;
      };
      const round = rounds.every('apiCertificates', look);
      round.startLater();
      return round.close;
    },
  };
}

async function readPair(files: { certificate: string; key: string }): Promise<ServerCertificate> {
  const read = (setting: string, path: string): Promise<string> =>
    readFile(path, 'utf8').catch((error: unknown) => {
      throw new ConfigError(`${setting}: ${path} cannot be read: ` + messageOf(error));
    });
  const pair = {
    certificatePem: await read('HOWDAH_TLS_CERT', files.certificate),
    keyPem: await read('HOWDAH_TLS_KEY', files.key),
  };
  if (!isPair(pair))
    throw new ConfigError(
      `HOWDAH_TLS_CERT, HOWDAH_TLS_KEY: ${files.certificate} and ${files.key} are ` +
        'no pair of PEM files',
    );
  return pair;
}
