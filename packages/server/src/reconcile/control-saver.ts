/**
 * Sends the data of the control plane to the repositories, each minute when it has changed. With it
 * and the backups of the services, a lost machine is replaced.
 */
import { createHash } from 'node:crypto';
import { presentUpgrades } from '../domain/service/upgrades.ts';
import type { Log } from '../lib/log.ts';
import type { Rounds } from '../lib/rounds.ts';
import { putObject } from '../repository/objects.ts';
import { assertOwner, OtherOwner } from '../repository/owner.ts';
import {
  CONTROL_OBJECT,
  RepositoryProblem,
  type PgBackRest,
  type Repository,
} from '../repository/repository.ts';
import type { KeptRepository } from '../repository/source.ts';
import { removeUnknownServices, stanzaOf } from '../repository/stanzas.ts';
import type { Store } from '../store/database.ts';
import {
  listUpgradesOf,
  listRepositories,
  recordControlProblem,
  recordControlSaved,
} from '../store/repositories.ts';

/** How often backups of services that are gone are looked for. */
const REMOVE_EVERY_MS = 86_400_000;

export type ControlSaverOptions = {
  store: Store;
  log: Log;
  rounds: Rounds;
  program: PgBackRest | null;
  /** A repository with its credentials; null: they cannot be read. */
  open: (row: { id: string; name: string; sealed: Buffer }) => Repository | null;
  /** The data of the control plane, compressed. */
  read: () => Promise<Buffer>;
};

type ControlSaver = Readonly<ControlSaverOptions> & {
  /** The hash of what each repository has. */
  saved: Map<string, string>;
  /** When services that are gone were last removed from each repository. */
  removed: Map<string, number>;
};

export function createControlSaver(options: ControlSaverOptions) {
  const saver: ControlSaver = {
    ...options,
    saved: new Map(),
    removed: new Map(),
  };
  return options.rounds.every('controlSaves', () => saveControl(saver));
}

async function saveControl(saver: ControlSaver): Promise<void> {
  const rows = await listRepositories(saver.store.db);
  const { program } = saver;
  if (rows.length === 0 || program === null) return;
  const savedMs = Date.now();
  const contents = await saver.read();
  const hash = createHash('sha256').update(contents).digest('hex');
  for (const row of rows) {
    const repository = saver.open(row);
    if (repository === null) continue;
    try {
      // Another installation may have taken the repository over.
      await assertOwner(program, repository, row.owner);
      await removeGone(saver, program, { ...repository, retentionDays: row.retention_days });
      if (saver.saved.get(row.id) === hash && row.control_problem === null) continue;
      await putObject(program, repository, CONTROL_OBJECT, contents);
      saver.saved.set(row.id, hash);
      await recordControlSaved(saver.store.db, row.id, savedMs);
    } catch (error) {
      if (!(error instanceof RepositoryProblem)) throw error;
      const problem = { text: error.message, isLost: error instanceof OtherOwner };
      await recordControlProblem(saver.store.db, row.id, problem);
    }
  }
}

/** Removes the backups of services that are gone, once a day. */
async function removeGone(
  { store, log, removed }: ControlSaver,
  program: PgBackRest,
  repository: KeptRepository,
): Promise<void> {
  const { id, name } = repository;
  if (performance.now() - (removed.get(id) ?? -Infinity) < REMOVE_EVERY_MS) return;
  removed.set(id, performance.now());
  const services = await removeUnknownServices(program, repository, async (ids) => {
    const rows = await listUpgradesOf(store.db, ids);
    return new Map(
      rows.map((row) => [
        row.id,
        {
          stanzas: presentUpgrades(row).map((one) => stanzaOf(row.id, one)),
          removedMs: row.kept === null ? null : Date.parse(row.kept.since),
          retentionDays: row.backup_retention_days,
        },
      ]),
    );
  });
  if (services.length > 0)
    log.info({ repository: name, services }, 'backups of data that is gone were removed');
}
