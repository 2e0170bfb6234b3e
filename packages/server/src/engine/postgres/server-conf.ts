/**
 * The configuration of one server, as pure functions of what it depends on: postgresql.conf, who
 * may connect (pg_hba.conf), and which users of the operating system may be our roles
 * (pg_ident.conf).
 */
import type { SetPurpose, Size } from '@howdah/contract';
import type { ServerFiles } from './server-files.ts';
import { quoted, serverSettings } from '../../domain/postgres/settings.ts';
import { COPY_ROLE } from '../moves.ts';
import { POOLER_ROLE } from '../pooler/lookup.ts';
import { READER_ROLE } from '../statements/session.ts';
import { CONTROL_ROLE, MAINTENANCE_DATABASE, PROBE_ROLE, SLOTS_ROLE } from './roles.ts';
import { needsPreload } from '../../domain/postgres/extension-rules.ts';
import { settingsOfPurpose } from '../../domain/replica-set.ts';

/**
 * Databases that no user may connect to: a session in one of them would keep others from being
 * created, and its objects would be in each of them.
 */
const CLOSED_DATABASES = 'template0,template1';

/** Beside the others, while a server takes more of the disk than it may; see quota.ts. */
export const QUOTA_FILE = 'quota.conf';
/** Beside the others, where a service has several members. */
export const REPLICATION_FILE = 'replication.conf';

export type ServerInput = {
  paths: Pick<ServerFiles, 'config' | 'socket' | 'logs' | 'archive'>;
  installation: {
    readonly major: number;
    /** The module that makes sessions read-only, if there is one. */
    readonly readOnly: { readonly path: string | null };
  };
  extensions: readonly string[];
  size: Size;
  /** null: there is no quota. */
  storageGb: number | null;
  /** null: no TCP at all (the metadata database, a template being made). */
  listen: { address: string; port: number } | null;
  /** The networks whose clients may connect; null: all. */
  allowedNetworks: readonly string[] | null;
  /**
   * Whether it is one of several members or nodes: a file of its own has their replication
   * settings; see replication.ts.
   */
  replicated?: boolean;
  /**
   * The purpose of the read replica set that it is a node of; its gateway, which is of its group,
   * comes in by its Unix socket. null: it is no node.
   */
  purpose?: SetPurpose | null;
  /** Whether its WAL goes to a repository off this machine: a file of it then, once a minute. */
  offMachine?: boolean;
  /** Whether a copy in another region follows it. */
  copied?: boolean;
  /** After how long an idle session ends, so that the service can fall asleep; null: it stays. */
  idleSessionSeconds?: number | null;
};

/** Users of the operating system that may be roles of ours. */
export type RoleUsers = {
  /** The user of the control plane. */
  control: string;
  /** The user that the server itself runs as; null: that of the control plane. */
  owner: { readonly name: string } | null;
  /** The user of gateways, if it is not the user of the service. */
  gateway: { readonly name: string } | null;
};

export type ServerConf = {
  'postgresql.conf': string;
  'pg_hba.conf': string;
  'pg_ident.conf': string;
};

/**
 * The configuration files of a server. They are outside the data directory: a base backup must not
 * contain them.
 */
export function serverConf(input: ServerInput, users: RoleUsers): ServerConf {
  return {
    'postgresql.conf': postgresqlConf(input),
    'pg_hba.conf': hba(input.allowedNetworks ?? ['all'], input.replicated, input.copied),
    'pg_ident.conf': identConf(users),
  };
}

/**
 * The files of a fork until it is provisioned: no client may connect, though it has all users of
 * its parent.
 *
 * @param files the files of the provisioned fork
 */
export function filesWhileProvisioning<Files extends ServerConf>(files: Files): Files {
  return { ...files, 'pg_hba.conf': hba([]) };
}

function postgresqlConf({
  paths,
  installation,
  extensions,
  size,
  storageGb,
  listen,
  replicated = false,
  purpose = null,
  offMachine = false,
  copied = false,
  idleSessionSeconds = null,
}: ServerInput): string {
  const settings: Record<string, string> = {
    ...serverSettings({
      size,
      major: installation.major,
      extensions,
      storageGb,
      readOnlyModule: installation.readOnly.path,
    }),
    listen_addresses: quoted(listen?.address ?? ''),
    port: String(listen?.port ?? 5432),
    unix_socket_directories: quoted(paths.socket),
    unix_socket_permissions: quoted(purpose === null ? '0700' : '0770'),
    hba_file: quoted(`${paths.config}/pg_hba.conf`),
    ident_file: quoted(`${paths.config}/pg_ident.conf`),
    log_directory: quoted(paths.logs),
    ...(purpose === null ? {} : settingsOfPurpose(purpose)),
    // Between the end of a base backup and the first connection of the copy, no slot keeps WAL.
    ...(copied ? { wal_keep_size: '512MB' } : {}),
    ...(idleSessionSeconds === null ? {} : { idle_session_timeout: `${idleSessionSeconds}s` }),
    ...(listen === null
      ? {}
      : {
          // [PG] 26.3.1: the module writes a file under another name, flushes it and renames it.
          archive_mode: 'on',
          archive_library: quoted('basic_archive'),
          'basic_archive.archive_directory': quoted(paths.archive),
          ...(offMachine ? { archive_timeout: '60s' } : {}),
          ssl: 'on',
          ssl_cert_file: quoted(`${paths.config}/server.crt`),
          ssl_key_file: quoted(`${paths.config}/server.key`),
          ssl_min_protocol_version: quoted('TLSv1.2'),
        }),
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  if (storageGb !== null) lines.push(`include_if_exists = ${quoted(QUOTA_FILE)}`);
  if (replicated) lines.push(`include_if_exists = ${quoted(REPLICATION_FILE)}`);
  return (
    '# Written by Howdah from the size of the service; changes are overwritten.\n' +
    `${lines.join('\n')}\n`
  );
}

/** A copy in another region replicates, and sees no database. Addresses of pods are not known. */
const COPY_RULES = `hostssl   replication  ${COPY_ROLE}  all  scram-sha-256
hostssl   all       ${COPY_ROLE}  all  reject
local     all       ${COPY_ROLE}       reject
`;

/**
 * A standby replicates, and has a session in the maintenance database, where no object, setting or
 * trigger is a tenant's: it reads the failover slots there.
 */
const SLOTS_RULES = `local     replication  ${SLOTS_ROLE}  peer map=replication
local     ${MAINTENANCE_DATABASE}  ${SLOTS_ROLE}  peer map=replication
local     all       ${SLOTS_ROLE}     reject
`;

/** The writer of a drill comes through the gateway of its machine. */
const PROBE_RULES = `hostssl   ${MAINTENANCE_DATABASE}  ${PROBE_ROLE}  127.0.0.1/32  scram-sha-256
hostssl   all       ${PROBE_ROLE}  all  reject
`;

const networkRule = (network: string): string =>
  `hostssl   all       all     ${network}       scram-sha-256\n`;

// Our own roles over the Unix socket only; users over TLS, with SCRAM, into their databases only:
// "all" is no database for replication. All other connections are refused, those in plain text
// among them. The directory of the socket is closed to others: users come that way through the
// pooler, and members of one service follow each other. Where there is a gateway, it brings the
// writer of a drill.
const hba = (
  allowedNetworks: readonly string[],
  replicated = false,
  copied = false,
): string => `# Written by Howdah; changes are overwritten.
# type    database  user  address  method
${copied ? COPY_RULES : ''}local     all       ${CONTROL_ROLE}     peer map=control
local     replication  ${CONTROL_ROLE}  peer map=replication
${replicated ? SLOTS_RULES : ''}local     all       ${READER_ROLE}     peer map=control
local     ${CLOSED_DATABASES}  all  reject
local     all       ${POOLER_ROLE}  peer map=pooler
local     all       all     scram-sha-256
hostssl   all       ${CONTROL_ROLE},${POOLER_ROLE},${READER_ROLE},${SLOTS_ROLE}  all  reject
${replicated ? PROBE_RULES : ''}hostssl   ${CLOSED_DATABASES}  all  all  reject
${allowedNetworks.map(networkRule).join('')}`;

/**
 * The service's own user, as whom a tenant may run programs one day, is our superuser in no
 * database: it replicates, and is the pooler, which comes to the nodes of a read replica set by
 * their gateway.
 */
function identConf({ control, owner, gateway }: RoleUsers): string {
  const service = owner?.name ?? control;
  const lines = [
    ...[CONTROL_ROLE, READER_ROLE].map((role) => ['control', control, role]),
    ...[CONTROL_ROLE, SLOTS_ROLE].map((role) => ['replication', service, role]),
    ...[service, ...(gateway === null ? [] : [gateway.name])].map((user) => [
      'pooler',
      user,
      POOLER_ROLE,
    ]),
  ];
  const text = lines
    .map(([map, user = '', role]) => `${map} "${user.replaceAll('"', '""')}" ${role}\n`)
    .join('');
  return `# Written by Howdah: the operating system users that may be our roles.\n${text}`;
}

/** The port in a `postgresql.conf` of {@link serverConf}; null: it names none. */
export function portIn(conf: string): number | null {
  const port = /^port = (\d+)$/m.exec(conf)?.[1];
  return port === undefined ? null : Number(port);
}

/** The extensions whose libraries a `postgresql.conf` of {@link serverConf} loads. */
export function librariesIn(conf: string): string[] {
  const names = /^shared_preload_libraries = '(.*)'$/m.exec(conf)?.[1] ?? '';
  return names.split(',').filter(needsPreload);
}
