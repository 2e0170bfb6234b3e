/** The configuration of an instance, with its certificate. */
import { join } from 'node:path';
import { readOrNull } from '../../../lib/processes.ts';
import type { CertificateIssuer, createCertificateCheck } from '../../../lib/tls.ts';
import type { InstancePaths } from '../host/layout.ts';
import { ownerOf } from '../host/users.ts';
import { hostsOf, type Listener } from '../network/listener.ts';
import type { ConfigFiles } from '../postgres/files.ts';
import { makeInstanceDirectories, writeConfig } from '../postgres/server.ts';
import type { Executor, Found } from './executor.ts';

/** Writes the files of a server that does not run. */
export async function configure(
  { machine, issuer }: Executor,
  { paths, files, listener }: Found,
): Promise<void> {
  const owner = ownerOf(machine, paths);
  await makeInstanceDirectories(owner, paths);
  await writeConfig(owner, paths, { ...files, ...(await issueCertificate(issuer, listener)) });
}

/** @returns the files of a certificate for the hosts of a listener, by name */
export async function issueCertificate(
  issuer: CertificateIssuer,
  listener: Listener,
): Promise<Record<string, string>> {
  const { certificatePem, keyPem } = await issuer.take(hostsOf(listener));
  return { 'server.crt': certificatePem, 'server.key': keyPem };
}

/** Whether the files of an instance are the desired ones. */
export async function areFilesCurrent(paths: InstancePaths, files: ConfigFiles): Promise<boolean> {
  const found = await Promise.all(
    Object.keys(files).map((name) => readOrNull(join(paths.config, name))),
  );
  return Object.values(files).every((text, index) => found[index] === text);
}

/**
 * Whether an instance has a certificate for the hosts of its listener that is valid for long
 * enough.
 */
export async function isCertificateCurrent(
  certificates: ReturnType<typeof createCertificateCheck>,
  paths: InstancePaths,
  listener: Listener,
): Promise<boolean> {
  const [pem, key] = await Promise.all(
    ['server.crt', 'server.key'].map((name) => readOrNull(join(paths.config, name))),
  );
  if (typeof pem !== 'string' || typeof key !== 'string') return false;
  return certificates.isCurrent(
    paths.config,
    { certificatePem: pem, keyPem: key },
    hostsOf(listener),
  );
}
