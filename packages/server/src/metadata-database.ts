/** Starts, opens and watches the metadata database: our own, or the one that the home records. */
import { randomUUID } from 'node:crypto';
import { messageOf } from '@howdah/contract/thrown';
import type { FastifyBaseLogger } from 'fastify';
import type { ClientConfig } from 'pg';
import { ConfigError, type Config } from './config.ts';
import { removeWalOnFullDisk } from './engine/local/backup/last-resort.ts';
import type { Machine } from './engine/local/host/machine-record.ts';
import { createServerMonitor } from './engine/local/postgres/server-monitor.ts';
import { findServer } from './engine/local/postgres/server.ts';
import {
  ensureStoreRunning,
  killStore,
  stopStore,
} from './engine/local/postgres/store-instance.ts';
import type { Templates } from './engine/local/postgres/templates.ts';
import { exists } from './lib/processes.ts';
import { findOwnProject, nameOf } from './metadata-record.ts';
import type { Startup } from './startup.ts';
import { AlreadyRunning } from './store/connections.ts';
import { problemOfContents } from './store/contents.ts';
import {
  openStore,
  WrongDatabase,
  type Standby as StandbyOfStore,
  type Store,
} from './store/database.ts';

/** How long after a failed start of our own metadata database the next one is tried. */
const RETRY_MS = 1000;

/** @throws AlreadyRunning when another control plane uses it; Error with what is in the way */
export async function openMetadataDatabase(
  startup: Startup,
  templates: Templates | null,
): Promise<Store> {
  const { config, log, rounds, timed, closers } = startup;
  const project = await findOwnProject(config.home);
  const connection = await timed('start the metadata database', () =>
    connectionOf(startup, templates, project),
  );
  const store = await timed('open the metadata database', () =>
    openStore(
      connection,
      rounds,
      (error) => log.warn({ err: error }, 'a connection to the metadata database broke'),
      {
        standby: waitingOf(startup),
        problemOf: (contents) => {
          // A home without credentials keeps the metadata database that is in it.
          const known = config.databaseUrl === null ? (project ?? contents.projects[0]) : project;
          return problemOfContents(contents, known ?? null, !config.localRegion);
        },
      },
    ),
  ).catch((error: unknown) => {
    // Another control plane works with the metadata database: it must not be stopped.
    if (error instanceof AlreadyRunning) closers.length = 0;
    else throw cannotOpen(config, error);
    throw error;
  });
  closers.push(() => store.close());
  return store;
}

/** Without the URL itself, which may contain a password. */
function cannotOpen({ home, databaseUrl }: Config, error: unknown): unknown {
  const reason = messageOf(error);
  if (error instanceof WrongDatabase)
    return new ConfigError(
      (databaseUrl === null ? '' : 'HOWDAH_DATABASE_URL: ') +
        `${nameOf(databaseUrl)} cannot be the metadata database of ${home}: ${reason}`,
    );
  if (databaseUrl === null) return error;
  return new Error(
    `HOWDAH_DATABASE_URL: ${nameOf(databaseUrl)} cannot be opened as metadata database: ${reason}`,
    { cause: error },
  );
}

/** How a control plane shares the metadata database with others; null: it does not. */
function waitingOf({ config, standby, log }: Startup): StandbyOfStore | null {
  if (standby === null) return null;
  let known = false;
  return {
    port: config.port,
    holder: (address) => {
      if (address !== null && !known) log.info({ address }, 'waiting: another control plane works');
      known = address !== null;
      standby.follow(address);
    },
    // Another one may work by now: what this one knows of regions and services is old.
    lost: () => {
      log.error({}, 'the lock of the metadata database is lost: ending');
      process.exit(1);
    },
  };
}

async function connectionOf(
  { config, machine, log, closers }: Startup,
  templates: Templates | null,
  project: string | null,
): Promise<ClientConfig> {
  if (config.databaseUrl !== null) return { connectionString: config.databaseUrl };
  if (machine === null || templates === null)
    throw new Error('a control plane without a local region needs HOWDAH_DATABASE_URL');
  // The first start makes it before the home has a project.
  if (project !== null && !(await exists(machine.layout.store.root)))
    throw new ConfigError(missingOwn(config.home, machine.layout.store.root));
  // The reserve may have been released and used up before this start.
  for (const { id, bytes } of await removeWalOnFullDisk(machine.layout, new Set()))
    log.warn({ service: id, bytes }, 'the disk is full: archived WAL of a service was removed');
  const connection = await ensureStoreRunning(machine, templates);
  closers.push(() => stopStore(machine));
  return connection;
}

const missingOwn = (home: string, path: string): string =>
  `the metadata database of ${home} is not there: ${path} is missing. Mount its disk, or restore ` +
  'it: howdah restore-control FILE. If it is in a PostgreSQL of yours, name that by ' +
  'HOWDAH_DATABASE_URL; DATABASE_URL is not read';

/** Starts our own metadata database again whenever it dies or hangs. */
export async function watchStore(machine: Machine, templates: Templates, log: FastifyBaseLogger) {
  const id = `store-${randomUUID()}`;
  const isFrozen = async (): Promise<boolean> =>
    (await findServer(machine.layout.store))?.postmaster.frozen === true;
  const monitor = createServerMonitor(() => revive(), isFrozen);
  let closing = false;
  let timer: NodeJS.Timeout | undefined;
  let reviving: Promise<void> = Promise.resolve();
  const revive = (): void => {
    if (!closing) reviving = tryToRevive();
  };
  const tryToRevive = async (): Promise<void> => {
    try {
      log.warn({}, 'the metadata database died or hangs: starting it again');
      // Made again, it would be empty: every service would be gone from the list.
      const { root } = machine.layout.store;
      if (!(await exists(root))) throw new Error(`${root} is missing`);
      if (monitor.silentMs(id) !== null) await killStore(machine);
      await ensureStoreRunning(machine, templates);
      await monitor.connect(id, machine.layout.store, 5432);
    } catch (error) {
      log.error({ err: error }, 'the metadata database does not start; trying again');
      timer = setTimeout(revive, RETRY_MS);
    }
  };
  // The server has answered already: if it is too busy for another session, the start goes on.
  await monitor.connect(id, machine.layout.store, 5432).catch((error: unknown) => {
    log.warn({ err: error }, 'the metadata database is not watched yet; trying again');
    timer = setTimeout(revive, RETRY_MS);
  });
  return {
    /** Starts it no more, so that a stop can end it. */
    close: async (): Promise<void> => {
      closing = true;
      await reviving;
      clearTimeout(timer);
      monitor.close();
    },
  };
}
