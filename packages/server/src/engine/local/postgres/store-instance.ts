/**
 * The control plane's own PostgreSQL: made from the same template and run by the same code as
 * services, without TCP.
 */
import type { ClientConfig } from 'pg';
import { cloneTree, removeTree } from '../host/clone.ts';
import { configFiles } from './files.ts';
import { CONTROL_ROLE } from '../../postgres/roles.ts';
import { flushFileSystem } from '../host/flush.ts';
import { writeSystemIdentifier } from '../../postgres/data/identity.ts';
import { installationFor, missingFor, type Installation } from './installations.ts';
import { instancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { isErrno, signal } from '../../../lib/processes.ts';
import { readFile, rename, writeFile } from '../host/root-files.ts';
import {
  findServer,
  launch,
  makeInstanceDirectories,
  stopServer,
  waitUntilReady,
  whyItEnded,
  writeConfig,
  PLAIN_START,
} from './server.ts';
import { phaseOf } from '../../postgres/postmaster-file.ts';
import type { Templates } from './templates.ts';
import { configUsersOf } from '../host/users.ts';

/** Crash recovery of the metadata database takes a moment; more than this is a fault. */
const START_DEADLINE_MS = 120_000;
const SIZE = { cpuMillis: 500, memoryGbs: 2 } as const;

/**
 * Makes sure that the metadata database is there and runs: adopts one that survived the control
 * plane, else starts it.
 *
 * @returns how to connect to it
 */
export async function ensureStoreRunning(
  machine: Machine,
  templates: Templates,
): Promise<ClientConfig> {
  const paths = machine.layout.store;
  const begunMs = Date.now();
  const installation = await installationOfStore(machine, templates);
  const files = configFiles(
    {
      paths,
      installation,
      extensions: [],
      size: SIZE,
      storageGb: null,
      listen: null,
      allowedNetworks: null,
    },
    configUsersOf(machine.owner),
  );
  const running = await findServer(paths);
  if (running !== null && (await phaseOf(paths)) === 'stopping')
    await stopServer(machine, running, 'fast', START_DEADLINE_MS);
  // Rules of an older release may let the user that it shared with services in as superuser.
  await writeConfig(machine.owner, paths, files);
  if (running !== null) signal(running.postmaster.pid, 'SIGHUP');
  if (running === null || (await findServer(paths)) === null) {
    await launch(machine, machine.owner, paths, installation.bin, { ...PLAIN_START, size: SIZE });
  }
  if ((await waitUntilReady(paths, START_DEADLINE_MS)) !== 'ready') {
    throw new Error(
      `the control plane's own PostgreSQL in ${paths.root} does not start: ` +
        (await whyItEnded(paths, begunMs)),
    );
  }
  return storeConnection(machine);
}

/** How to connect to the metadata database. */
export function storeConnection({ layout }: Pick<Machine, 'layout'>): ClientConfig {
  return { host: layout.store.socket, port: 5432, user: CONTROL_ROLE, database: 'postgres' };
}

/** Stops the metadata database; one that does not run is no error. */
export async function stopStore(machine: Machine): Promise<void> {
  const running = await findServer(machine.layout.store);
  if (running !== null) await stopServer(machine, running, 'fast', 60_000);
}

/** Ends a metadata database that does not answer. */
export async function killStore(machine: Machine): Promise<void> {
  const running = await findServer(machine.layout.store);
  if (running !== null) await stopServer(machine, running, 'kill', 60_000);
}

/** The installation that the metadata database was made with; at the first start they are made. */
async function installationOfStore(machine: Machine, templates: Templates): Promise<Installation> {
  const { usable } = machine.installations;
  const paths = machine.layout.store;
  const name = await readMarker(paths.marker);
  if (name !== null) {
    const known =
      usable.find((found) => found.name === name) ??
      usable.find((found) => found.major === Number.parseInt(name, 10));
    if (known === undefined)
      throw new Error(
        `the metadata database in ${paths.root} needs PostgreSQL ${name}, ` +
          'which is no longer installed; install it again',
      );
    return known;
  }
  const chosen = installationFor(usable, [], null);
  if (chosen === null) throw new Error(missingFor(usable, [], null));
  const template = await templates.ensure(chosen, []);
  const unfinished = instancePaths(`${paths.root}.new`);
  await removeTree(unfinished.root, machine.cloneMethod);
  await makeInstanceDirectories(machine.owner, unfinished);
  await cloneTree(template.data, unfinished.data, machine, machine.owner);
  await writeSystemIdentifier(unfinished.data);
  await writeFile(unfinished.marker, JSON.stringify({ id: 'store', installation: chosen.name }), {
    flush: true,
  });
  await flushFileSystem(unfinished.data);
  await rename(unfinished.root, paths.root);
  return chosen;
}

async function readMarker(path: string): Promise<string | null> {
  try {
    const marker: unknown = JSON.parse(await readFile(path, 'utf8'));
    return typeof marker === 'object' && marker !== null && 'installation' in marker
      ? String(marker.installation)
      : null;
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return null;
    throw error;
  }
}
