/** Starts, opens and watches the metadata database: one of our own, or the one that DATABASE_URL names. */
import { randomUUID } from 'node:crypto';
import type { FastifyBaseLogger } from 'fastify';
import type { ClientConfig } from 'pg';
import { removeWalOnFullDisk } from './engine/local/backup/last-resort.ts';
import type { Machine } from './engine/local/host/machine-record.ts';
import { createMonitor } from './engine/local/postgres/monitor.ts';
import { findServer } from './engine/local/postgres/server.ts';
import {
  ensureStoreRunning,
  killStore,
  stopStore,
} from './engine/local/postgres/store-instance.ts';
import type { Templates } from './engine/local/postgres/templates.ts';
import type { Startup } from './startup.ts';
import { AlreadyRunning } from './store/connections.ts';
import { openStore, type Standby as StandbyOfStore, type Store } from './store/database.ts';

/** How long after a failed start of our own metadata database the next one is tried. */
const RETRY_MS = 1000;

/** @throws AlreadyRunning when another control plane uses it; Error with what is in the way */
export async function openMetadataDatabase(
  startup: Startup,
  templates: Templates | null,
): Promise<Store> {
  const { config, log, rounds, timed, closers } = startup;
  const connection = await timed('start the metadata database', () =>
    connectionOf(startup, templates),
  );
  const store = await timed('open the metadata database', () =>
    openStore(
      connection,
      rounds,
      (error) => log.warn({ err: error }, 'a connection to the metadata database broke'),
      waitingOf(startup),
    ),
  ).catch((error: unknown) => {
    // Another control plane works with the metadata database: it must not be stopped.
    if (error instanceof AlreadyRunning) closers.length = 0;
    else if (config.databaseUrl !== null) throw cannotOpen(config.databaseUrl, error);
    throw error;
  });
  closers.push(() => store.close());
  return store;
}

/** Without the URL itself, which may contain a password. */
function cannotOpen(databaseUrl: string, error: unknown): Error {
  const reason = error instanceof Error ? error.message : String(error);
  return new Error(
    `DATABASE_URL: the metadata database in ${new URL(databaseUrl).host} cannot be opened: ${reason}`,
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
): Promise<ClientConfig> {
  if (config.databaseUrl !== null) return { connectionString: config.databaseUrl };
  if (machine === null || templates === null)
    throw new Error('a control plane without a local region needs DATABASE_URL');
  // The reserve may have been released and used up before this start.
  for (const { id, bytes } of await removeWalOnFullDisk(machine.layout, new Set()))
    log.warn({ service: id, bytes }, 'the disk is full: archived WAL of a service was removed');
  const connection = await ensureStoreRunning(machine, templates);
  closers.push(() => stopStore(machine));
  return connection;
}

/** Starts our own metadata database again whenever it dies or hangs. */
export async function watchStore(machine: Machine, templates: Templates, log: FastifyBaseLogger) {
  const id = `store-${randomUUID()}`;
  const isFrozen = async (): Promise<boolean> =>
    (await findServer(machine.layout.store))?.postmaster.frozen === true;
  const monitor = createMonitor(() => revive(), isFrozen);
  let closing = false;
  let timer: NodeJS.Timeout | undefined;
  let reviving: Promise<void> = Promise.resolve();
  const revive = (): void => {
    if (!closing) reviving = tryToRevive();
  };
  const tryToRevive = async (): Promise<void> => {
    try {
      log.warn({}, 'the metadata database died or hangs: starting it again');
      if (monitor.silentMs(id) !== null) await killStore(machine);
      await ensureStoreRunning(machine, templates);
      await monitor.connect(id, machine.layout.store, 5432);
    } catch (error) {
      log.error({ err: error }, 'the metadata database does not start; trying again');
      timer = setTimeout(revive, RETRY_MS);
    }
  };
  // It has answered the start already: if it is too busy for another session, the start goes on.
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
