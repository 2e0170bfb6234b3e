/** The credentials of repositories, as they are in the metadata database and in recovery kits. */
import type { RecoveryKit } from '@howdah/contract';
import { fieldsOf, storageOf, type StorageFields } from '../domain/repository/storage.ts';
import type { Sealer } from '../events/sealer.ts';
import type { Repository } from '../repository/repository.ts';
import type { RepositoryRow } from '../store/repositories.ts';

type Secrets = { storage: StorageFields; passphrase: string };

export function sealRepository(sealer: Sealer, { storage, passphrase }: Repository): Buffer {
  const secrets: Secrets = { storage: fieldsOf(storage), passphrase };
  return sealer.seal(JSON.stringify(secrets));
}

/** A repository with its credentials; null: they were sealed with another key. */
export function openRepository(
  sealer: Sealer,
  { id, name, sealed }: Pick<RepositoryRow, 'id' | 'name' | 'sealed'>,
): Repository | null {
  const opened = sealer.open(sealed);
  if (opened === null) return null;
  // Sealed by ourselves: it has the shape that was sealed.
  const { storage, passphrase }: Secrets = JSON.parse(opened);
  return { id, name, storage: storageOf(storage), passphrase };
}

/** The repository of a recovery kit. @throws ApiError for a storage that is none */
export function repositoryOf({ repository, passphrase }: RecoveryKit): Repository {
  const { name, ...storage } = repository;
  return { id: 'kit', name, storage: storageOf(storage), passphrase };
}
