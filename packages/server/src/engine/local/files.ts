/** The configuration files of one server, as pure functions of what they depend on. */
import type { Installation } from './installations.ts';
import type { InstancePaths } from './layout.ts';
import { quoted, serverSettings } from './settings.ts';
import { DATABASE_NAME, type AddonExtension, type Size } from '@howdah/contract';

/** The superuser of every server: reachable by the control plane's own user over the Unix socket and by nobody else. */
export const CONTROL_ROLE = 'howdah';

export type ServerInput = {
  paths: InstancePaths;
  installation: Installation;
  extensions: readonly AddonExtension[];
  size: Size;
  /** null: no TCP at all (the metadata database, a template being made). */
  listen: { address: string; port: number } | null;
};

export type ConfigFiles = {
  'postgresql.conf': string;
  'pg_hba.conf': string;
  'pg_ident.conf': string;
};

/** Every configuration file of a server. They stand outside the data directory: a base backup must not carry them. */
export function configFiles(input: ServerInput, controlUsers: readonly string[]): ConfigFiles {
  return { 'postgresql.conf': postgresqlConf(input), 'pg_hba.conf': HBA, 'pg_ident.conf': identConf(controlUsers) };
}

function postgresqlConf({ paths, installation, extensions, size, listen }: ServerInput): string {
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
  return `# Written by Howdah from the size of the service; changes are overwritten.\n${lines.join('\n')}\n`;
}

// Our own role over the Unix socket only; users over TLS, with SCRAM, into their database only. What is not named here is refused,
// physical replication and plain text among it.
const HBA = `# Written by Howdah; changes are overwritten.
# type    database  user  address  method
local     all       ${CONTROL_ROLE}            peer map=control
hostssl   all       ${CONTROL_ROLE}  all       reject
hostssl   ${DATABASE_NAME}      all     all       scram-sha-256
`;

function identConf(controlUsers: readonly string[]): string {
  const lines = controlUsers.map((user) => `control "${user.replaceAll('"', '""')}" ${CONTROL_ROLE}`);
  return `# Written by Howdah: the operating system users that may be ${CONTROL_ROLE}.\n${lines.join('\n')}\n`;
}
