/** The repositories of the metadata database, for the engines. */
import { locationOf } from './domain/repository/storage.ts';
import type { Sealer } from './events/sealer.ts';
import type { PgBackRest } from './repository/repository.ts';
import type { RepositorySource } from './repository/source.ts';
import { openRepository } from './services/repository-secrets.ts';
import { listRepositories } from './store/repositories.ts';
import type { Db } from './store/tables.ts';

/** @param program the installed pgBackRest; null: there is none */
export async function openRepositories(
  db: Db,
  sealer: Sealer,
  program: PgBackRest | null,
): Promise<RepositorySource> {
  let known: readonly string[] = [];
  const list: RepositorySource['list'] = async () => {
    const found = (await listRepositories(db)).flatMap((row) => {
      // Another installation may own it now.
      const repository = row.is_lost ? null : openRepository(sealer, row);
      return repository === null ? [] : [{ ...repository, retentionDays: row.retention_days }];
    });
    known = found.map(({ id }) => id);
    return found;
  };
  await list();
  const open: RepositorySource['open'] = (sealed) => {
    const kit = { id: 'kit', name: 'kit', sealed: Buffer.from(sealed, 'base64') };
    const found = openRepository(sealer, kit);
    // It has no name here: messages say where it is.
    return found === null ? null : { ...found, name: locationOf(found.storage) };
  };
  return { program, list, open, known: () => known };
}
