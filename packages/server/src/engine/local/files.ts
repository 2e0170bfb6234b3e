/** The configuration files of one server, as pure functions of what they depend on. */
import type { Installation } from './installations.ts';
import type { InstancePaths } from './layout.ts';
import { quoted, serverSettings } from './settings.ts';
import { DATABASE_NAME, type AddonExtension, type Size } from '@howdah/contract';

/** The superuser of every server: reachable by the control plane's own user over the Unix socket and by nobody else. */
export const CONTROL_ROLE = 'howdah';
/** The role of a service's pooler, which may read the verifiers of others: reachable by the pooler over the Unix socket and by nobody else. */
export const POOLER_ROLE = 'howdah_pooler';

/** As which statements run that users send through the API: it may read all data, and nothing else; see reader.ts. Reachable as the pooler's. */
export const READER_ROLE = 'howdah_reader';

/** Beside the others, where a service has several members. */
export const REPLICATION_FILE = 'replication.conf';

export type ServerInput = {
  paths: InstancePaths;
  installation: Installation;
  extensions: readonly AddonExtension[];
  size: Size;
  /** null: no TCP at all (the metadata database, a template being made). */
  listen: { address: string; port: number } | null;
  /** The networks whose clients are let in; null: all. */
  admitted: readonly string[] | null;
  /** Whether it is one of several, which follow each other: its settings as such stand in a file of their own; see replication.ts. */
  replicated?: boolean;
};

export type ConfigFiles = {
  'postgresql.conf': string;
  'pg_hba.conf': string;
  'pg_ident.conf': string;
};

/** Every configuration file of a server. They stand outside the data directory: a base backup must not carry them. */
export function configFiles(input: ServerInput, controlUsers: readonly string[]): ConfigFiles {
  return {
    'postgresql.conf': postgresqlConf(input),
    'pg_hba.conf': hba(input.admitted ?? ['all']),
    'pg_ident.conf': identConf(controlUsers),
  };
}

/**
 * The files of a fork until it is born: nobody gets in, though it knows all users of its parent.
 *
 * @param files those that it has from then on
 */
export function filesOfUnborn(files: ConfigFiles): ConfigFiles {
  return { ...files, 'pg_hba.conf': hba([]) };
}

function postgresqlConf({ paths, installation, extensions, size, listen, replicated = false }: ServerInput): string {
  const settings: Record<string, string> = {
    ...serverSettings({ size, major: installation.major, extensions }),
    listen_addresses: quoted(listen?.address ?? ''),
    port: String(listen?.port ?? 5432),
    unix_socket_directories: quoted(paths.socket),
    unix_socket_permissions: '0700',
    hba_file: quoted(`${paths.config}/pg_hba.conf`),
    ident_file: quoted(`${paths.config}/pg_ident.conf`),
    log_directory: quoted(paths.logs),
    ...(listen === null
      ? {}
      : {
          // [PG] 26.3.1: the module writes a file under another name, flushes it and renames it.
          archive_mode: 'on',
          archive_library: quoted('basic_archive'),
          'basic_archive.archive_directory': quoted(paths.archive),
          ssl: 'on',
          ssl_cert_file: quoted(`${paths.config}/server.crt`),
          ssl_key_file: quoted(`${paths.config}/server.key`),
          ssl_min_protocol_version: quoted('TLSv1.2'),
        }),
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  if (replicated) lines.push(`include_if_exists = ${quoted(REPLICATION_FILE)}`);
  return `# Written by Howdah from the size of the service; changes are overwritten.\n${lines.join('\n')}\n`;
}

// Our own roles over the Unix socket only; users over TLS, with SCRAM, into their database only. What is not named here is refused, plain
// text among it. The directory of the socket is closed to others: users come that way through the pooler, and members of one service follow
// each other.
const hba = (admitted: readonly string[]): string => `# Written by Howdah; changes are overwritten.
# type    database  user  address  method
local     all,replication  ${CONTROL_ROLE}     peer map=control
local     ${DATABASE_NAME}      ${POOLER_ROLE},${READER_ROLE}  peer map=control
local     ${DATABASE_NAME}      all               scram-sha-256
hostssl   all       ${CONTROL_ROLE},${POOLER_ROLE},${READER_ROLE}  all  reject
${admitted.map((network) => `hostssl   ${DATABASE_NAME}      all     ${network}       scram-sha-256\n`).join('')}`;

function identConf(controlUsers: readonly string[]): string {
  const lines = controlUsers.flatMap((user) =>
    [CONTROL_ROLE, POOLER_ROLE, READER_ROLE].map((role) => `control "${user.replaceAll('"', '""')}" ${role}`),
  );
  return `# Written by Howdah: the operating system users that may be our roles.\n${lines.join('\n')}\n`;
}

/** The port in a `postgresql.conf` of {@link configFiles}; null: it names none. */
export function portIn(conf: string): number | null {
  const port = /^port = (\d+)$/m.exec(conf)?.[1];
  return port === undefined ? null : Number(port);
}
