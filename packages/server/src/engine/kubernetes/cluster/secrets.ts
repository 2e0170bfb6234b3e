/** The secrets of services. */
import { ADMIN_ROLE } from '@howdah/contract';
import { POOLER_ROLE } from '../../pooler/lookup.ts';
import { READER_ROLE } from '../../statements/session.ts';
import type { Manifest } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';
import {
  AUTHORITY_SECRET,
  certificateSecret,
  clusterName,
  controlSecret,
  copySecret,
  LABELS,
  MANAGED,
  namespaceOf,
  passwordSecret,
  poolerCertificate,
  poolerName,
  readerSecret,
} from '../names.ts';
import { GUARD_ROLE } from '../network/rules.ts';

/** A namespace; nothing but ours may be in it. */
export function namespaceManifest(projectId: string): Manifest {
  return {
    apiVersion: KINDS.namespace.apiVersion,
    kind: KINDS.namespace.kind,
    metadata: {
      name: namespaceOf(projectId),
      labels: {
        ...MANAGED,
        [LABELS.project]: projectId,
        'pod-security.kubernetes.io/enforce': 'restricted',
      },
    },
  };
}

/** CloudNativePG applies a secret with this label as soon as it changes. */
const RELOADED = { 'cnpg.io/reload': 'true' } as const;

/**
 * @param verifier a SCRAM verifier, which PostgreSQL takes as it is. A line end after it would make
 *   the verifier itself the password.
 */
export function passwordManifest(id: string, projectId: string, verifier: string): Manifest {
  const labels = { [LABELS.service]: id };
  const data = { username: ADMIN_ROLE, password: verifier };
  return secretManifest(passwordSecret(id), projectId, labels, data, 'kubernetes.io/basic-auth');
}

/** @param password the control plane logs in with it, so it is no verifier */
export function readerManifest(id: string, projectId: string, password: string): Manifest {
  const labels = { [LABELS.service]: id };
  const data = { username: READER_ROLE, password };
  return secretManifest(readerSecret(id), projectId, labels, data, 'kubernetes.io/basic-auth');
}

/** @param password the control plane logs in with it, so it is no verifier */
export function controlManifest(id: string, projectId: string, password: string): Manifest {
  const labels = { [LABELS.service]: id };
  const data = { username: GUARD_ROLE, password };
  return secretManifest(controlSecret(id), projectId, labels, data, 'kubernetes.io/basic-auth');
}

/** @param password by which a copy replicates from a service in another region */
export function copyManifest(id: string, projectId: string, password: string): Manifest {
  const labels = { [LABELS.service]: id };
  return secretManifest(copySecret(id), projectId, labels, { password });
}

/** The file of users of PgBouncer: its own role, with which it looks up the others. */
export const USERS_FILE = 'pgbouncer.users';

/** @param password of the role of the pooler, without quotes */
export function poolerSecretManifest(id: string, projectId: string, password: string): Manifest {
  const labels = { [LABELS.service]: id };
  const data = {
    username: POOLER_ROLE,
    password,
    [USERS_FILE]: `"${POOLER_ROLE}" "${password}"\n`,
  };
  return secretManifest(
    poolerName(clusterName(id)),
    projectId,
    labels,
    data,
    'kubernetes.io/basic-auth',
  );
}

/** The certificate of the authority, by which servers of a project verify each other. */
export function authorityManifest(projectId: string, certificatePem: string): Manifest {
  return secretManifest(AUTHORITY_SECRET, projectId, {}, { 'ca.crt': certificatePem });
}

/**
 * The certificate of the servers of a Cluster. CloudNativePG renews none that it did not make.
 *
 * @param name of the Cluster @param id of the service or read replica set
 */
export function certificateManifest(
  name: string,
  id: string,
  projectId: string,
  { certificatePem, keyPem }: Readonly<{ certificatePem: string; keyPem: string }>,
): Manifest {
  const labels = { [LABELS.service]: id };
  const data = { 'tls.crt': certificatePem, 'tls.key': keyPem };
  return secretManifest(certificateSecret(name), projectId, labels, data, 'kubernetes.io/tls');
}

/**
 * The certificate of a pooler. It has no type, by which those that need renewal are found: see
 * `issueClientCertificate`.
 *
 * @param cluster the name of the Cluster @param id of the service or read replica set
 */
export function poolerCertificateManifest(
  cluster: string,
  id: string,
  projectId: string,
  { certificatePem, keyPem }: Readonly<{ certificatePem: string; keyPem: string }>,
): Manifest {
  const labels = { [LABELS.service]: id };
  const data = { 'tls.crt': certificatePem, 'tls.key': keyPem };
  return secretManifest(poolerCertificate(cluster), projectId, labels, data);
}

export function secretManifest(
  name: string,
  projectId: string,
  labels: Readonly<Record<string, string>>,
  data: Readonly<Record<string, string>>,
  type = 'Opaque',
): Manifest {
  return {
    apiVersion: KINDS.secret.apiVersion,
    kind: KINDS.secret.kind,
    metadata: {
      name,
      namespace: namespaceOf(projectId),
      labels: { ...MANAGED, ...RELOADED, [LABELS.project]: projectId, ...labels },
    },
    type,
    data: Object.fromEntries(Object.entries(data).map(([key, value]) => [key, base64(value)])),
  };
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');
