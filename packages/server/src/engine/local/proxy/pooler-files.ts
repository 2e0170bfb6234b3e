/** The files of a pooler on this machine. */
import { join } from 'node:path';
import { hostRules, poolerConf } from '../../pooler/conf.ts';
import { POOLER_ROLE } from '../../pooler/lookup.ts';
import { READER_ROLE } from '../../statements/session.ts';
import type { InstancePaths } from '../host/layout.ts';
import { CONTROL_ROLE } from '../../postgres/roles.ts';

export const CONF_FILE = 'pgbouncer.ini';
export const HBA_FILE = 'pgbouncer.hba';
export const USERS_FILE = 'pgbouncer.users';

export type LocalPoolerInput = {
  /**
   * The paths of the service: they hold the pooler's files and directory, whichever member it
   * connects to.
   */
  paths: InstancePaths;
  /** The version of PgBouncer. */
  version: string;
  listen: { address: string; port: number };
  /** The networks whose clients may connect; null: all. */
  allowedNetworks: readonly string[] | null;
  /** The databases beside that of the service; null: all. */
  databases: readonly string[] | null;
  /** The server that it connects to, over its Unix socket. */
  server: { paths: InstancePaths; port: number; major: number; maxConnections: number };
  /** The certificate that clients are shown, in PEM; the server's. */
  certificatePem: string;
};

/** The pgbouncer.ini of a pooler. */
export function localPoolerConf({ paths, server, ...input }: LocalPoolerInput): string {
  return poolerConf({
    ...input,
    console: { directory: paths.pooler.root, role: CONTROL_ROLE },
    files: {
      hba: join(paths.config, HBA_FILE),
      users: join(paths.config, USERS_FILE),
      certificate: join(server.paths.config, 'server.crt'),
      key: join(server.paths.config, 'server.key'),
    },
    server: {
      host: server.paths.socket,
      port: server.port,
      major: server.major,
      maxConnections: server.maxConnections,
      authority: null,
      client: null,
    },
  });
}

// The permissions of its socket's directory protect the console, as they protect the server's
// socket. Our roles are rejected over TCP: the server would trust them.
export const accessFiles = (allowedNetworks: readonly string[]): Record<string, string> => ({
  [HBA_FILE]: `# Written by Howdah; changes are overwritten.
# type    database  user  address  method
local     pgbouncer  ${CONTROL_ROLE}  trust
local     all        all              reject
${hostRules([CONTROL_ROLE, POOLER_ROLE, READER_ROLE], allowedNetworks)}`,
  [USERS_FILE]: `"${CONTROL_ROLE}" ""\n`,
});
