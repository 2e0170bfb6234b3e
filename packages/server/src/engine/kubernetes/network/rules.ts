/**
 * The networks whose clients may connect to a service, as rules of pg_hba.conf
 * (docs/decisions/0066-networks-on-kubernetes.md).
 */
import { createHash } from 'node:crypto';
import { DATABASE_NAME } from '@howdah/contract';
import { READER_ROLE } from '../../statements/session.ts';
import { controlSecret } from '../names.ts';

/**
 * The role by which the control plane ends sessions of clients that may no longer connect, and by
 * which a move reads catalogs.
 */
export const GUARD_ROLE = 'howdah_control';
/** The databases that it connects to: the second one if an earlier release made the service. */
export const CONTROL_DATABASES = ['postgres', DATABASE_NAME] as const;
/** Sessions of two control planes at a time. */
const SESSIONS = 2;

/** The role as a Cluster has it. */
export function controlRole(id: string): object {
  return {
    name: GUARD_ROLE,
    ensure: 'present',
    login: true,
    connectionLimit: SESSIONS,
    inRoles: ['pg_checkpoint', 'pg_read_all_stats', 'pg_signal_backend'],
    passwordSecret: { name: controlSecret(id) },
  };
}

/** SQL that a superuser runs once in a new server. */
export const CONTROL_SQL: readonly string[] = [
  `create role ${GUARD_ROLE}`,
  `grant connect on database postgres to ${GUARD_ROLE}`,
];

/**
 * How nodes pass connections on. The addresses of clients are seen only with Local, which answers
 * at the nodes of the pods only.
 */
export const trafficPolicy = (networks: readonly string[] | null): 'Cluster' | 'Local' =>
  networks === null ? 'Cluster' : 'Local';

/** The setting by which a session sees which rules its server has loaded. */
export const NETWORKS_SETTING = 'howdah.networks';

/** The value of the setting. @param networks null: all @param isPooled whether a pooler connects */
export const networksVersion = (networks: readonly string[] | null, isPooled: boolean): string =>
  networks === null
    ? 'all'
    : createHash('sha256')
        .update(JSON.stringify(isPooled ? { pooled: networks } : networks))
        .digest('hex')
        .slice(0, 16);

/**
 * The rules of a Cluster. CloudNativePG has its own for standbys before them, and a last one that
 * lets everybody in with a password, with or without TLS.
 *
 * @param networks null: all
 * @param isPooled whether a pooler connects, from an address that changes
 */
export function networkRules(networks: readonly string[] | null, isPooled: boolean): string[] {
  const onlyTls = 'hostnossl all all all reject';
  if (networks === null) return [onlyTls];
  return [
    onlyTls,
    // The address of the control plane is not known, and nobody else has these passwords.
    `hostssl all ${READER_ROLE},${GUARD_ROLE} all scram-sha-256`,
    ...networks.map((network) => `hostssl all all ${network} scram-sha-256`),
    // Beside the password, a certificate of the authority of the Cluster, which no client has.
    ...(isPooled ? ['hostssl all all all scram-sha-256 clientcert=verify-ca'] : []),
    'host all all all reject',
  ];
}
