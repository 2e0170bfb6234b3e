/** A server that runs for a while beside the services, without TCP and without clients. */
import { join } from 'node:path';
import { ADMIN_ROLE } from '@howdah/contract';
import type { InstancePaths } from '../host/layout.ts';
import { enforceLimits } from '../host/limits.ts';
import type { Machine } from '../host/machine-record.ts';
import { type Owner, configUsersOf } from '../host/users.ts';
import type { ServiceSpec } from '../../spec.ts';
import { configFiles } from '../postgres/files.ts';
import { CONTROL_ROLE } from '../../postgres/roles.ts';
import type { Installation } from '../postgres/installations.ts';
import {
  findServer,
  launch,
  stopServer,
  waitUntilReady,
  whyItEnded,
  writeConfig,
  PLAIN_START,
} from '../postgres/server.ts';
import { loadedExtensions } from '../../../domain/postgres/extension-rules.ts';
import { writeOwned } from '../backup/running-clone.ts';

/** The port in the name of its socket: the directory holds no other socket. */
export const COPY_PORT = 5432;

/** Recovery of a clone that was taken of a running server. */
const START_DEADLINE_MS = 600_000;
const STOP_DEADLINE_MS = 600_000;

/** No background work. All of it is flushed as a whole before a client can connect. */
const QUIET_CONF = [
  'max_logical_replication_workers = 0',
  'autovacuum = off',
  'fsync = off',
  'full_page_writes = off',
  // pg_dump reads large objects of all owners.
  'lo_compat_privileges = on',
  '',
].join('\n');

/** The control plane, and tsdbadmin as the user of the service or of the control plane. */
const HBA = `# Written by Howdah.
local  all  ${CONTROL_ROLE}  peer map=control
local  all  ${ADMIN_ROLE}  peer map=admin
`;

/** The parts of a service that its private servers have. */
export type PrivateSpec = Pick<
  ServiceSpec,
  'id' | 'size' | 'cpuBound' | 'storageGb' | 'addons' | 'preload'
> & {
  /** The group whose limits they share; default: that of the service. */
  readonly group?: string;
};

/**
 * Starts a server for the data of a service that is being made, with the size of the service.
 *
 * @param recovery the settings of a recovery that comes first
 */
export async function startPrivateServer(
  machine: Machine,
  owner: Owner | null,
  spec: PrivateSpec,
  paths: InstancePaths,
  installation: Installation,
  recovery = '',
): Promise<void> {
  const users = configUsersOf(owner);
  const input = {
    paths,
    installation,
    extensions: loadedExtensions(spec),
    size: spec.size,
    storageGb: spec.storageGb,
    listen: null,
    allowedNetworks: null,
  } as const;
  const files = configFiles(input, users);
  const names = [...new Set([users.control, owner?.name ?? users.control])];
  const ident = names.map((name) => `admin "${name.replaceAll('"', '""')}" ${ADMIN_ROLE}\n`);
  await writeConfig(owner, paths, {
    ...files,
    'pg_hba.conf': HBA,
    'pg_ident.conf': `${files['pg_ident.conf']}${ident.join('')}`,
  });
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), `${recovery}${QUIET_CONF}`);
  const launchedMs = Date.now();
  await launch(machine, owner, paths, installation.bin, PLAIN_START);
  const state = await waitUntilReady(paths, START_DEADLINE_MS);
  const server = await findServer(paths);
  if (state !== 'ready' || server === null)
    throw new Error(
      `PostgreSQL ${installation.version} did not start: ${await whyItEnded(paths, launchedMs)}`,
    );
  await enforceLimits(machine, spec.group ?? spec.id, spec, server.postmaster.pid);
}

/** Stops a server in order, so that its files are whole. @throws Error when it does not stop */
export async function stopPrivateServer(
  machine: Machine,
  owner: Owner | null,
  paths: InstancePaths,
): Promise<void> {
  const server = await findServer(paths);
  if (server === null || !(await stopServer(machine, server, 'fast', STOP_DEADLINE_MS)))
    throw new Error('the new server did not shut down');
  await writeOwned(owner, join(paths.data, 'postgresql.auto.conf'), '');
}
