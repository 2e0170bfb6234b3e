/** The certificate of the API: from files that somebody else renews, or of our own CA. */
import { readFile } from 'node:fs/promises';
import type { Server } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import type { FastifyBaseLogger } from 'fastify';
import { ConfigError, type Config } from '../config.ts';
import {
  isPair,
  issueServerCertificate,
  needsRenewal,
  type CertificateAuthority,
  type ServerCertificate,
} from '../lib/tls.ts';

/** How often files are read again, and the end of a certificate of our own is looked at. */
const LOOK_EVERY_MS = 3_600_000;

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
    /** Takes up what was renewed, without a restart. @returns ends it */
    keepCurrent: (
      server: Server,
      log: Pick<FastifyBaseLogger, 'warn'>,
      everyMs = LOOK_EVERY_MS,
    ): (() => void) => {
      const look = async (): Promise<void> => {
        const next = await load(current);
        if (next.certificatePem === current.certificatePem || !(server instanceof HttpsServer))
          return;
        server.setSecureContext({ cert: next.certificatePem, key: next.keyPem });
        current = next;
      };
      const timer = setInterval(() => {
        look().catch((error: unknown) =>
          log.warn(
            { err: error },
            'the certificate of the API cannot be renewed; the old one stays in use',
          ),
        );
      }, everyMs).unref();
      return () => clearInterval(timer);
    },
  };
}

async function readPair(files: { certificate: string; key: string }): Promise<ServerCertificate> {
  const read = (setting: string, path: string): Promise<string> =>
    readFile(path, 'utf8').catch((error: unknown) => {
      throw new ConfigError(
        `${setting}: ${path} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
      );
    });
  const pair = {
    certificatePem: await read('HOWDAH_TLS_CERT', files.certificate),
    keyPem: await read('HOWDAH_TLS_KEY', files.key),
  };
  if (!isPair(pair))
    throw new ConfigError(
      `HOWDAH_TLS_CERT, HOWDAH_TLS_KEY: ${files.certificate} and ${files.key} are no pair of PEM files`,
    );
  return pair;
}
