/** Calls on repositories: where backups are kept off the machine. */
import { randomBytes } from 'node:crypto';
import {
  ApiError,
  isId,
  MAX_REPOSITORIES,
  RETENTION_DAYS,
  type CreateRepositoryBody,
  type RecoveryKit,
  type RepositoryDocument,
} from '@howdah/contract';
import { repositoryDocument, type RepositoryUse } from '../domain/repository/document.ts';
import {
  fieldsOf,
  locationOf,
  storageOf,
  type StorageFields,
} from '../domain/repository/storage.ts';
import type { OffMachineState } from '../engine/off-machine.ts';
import type { Sealer } from '../lib/sealer.ts';
import { newId } from '../lib/ids.ts';
import {
  assertOwner,
  claimRepository,
  OtherOwner,
  ownedBy,
  readOwner,
} from '../repository/owner.ts';
import { checkRepository } from '../repository/objects.ts';
import { RepositoryProblem, type PgBackRest, type Repository } from '../repository/repository.ts';
import type { RepositorySource } from '../repository/source.ts';
import {
  deleteFormerRepository,
  deleteRepositoryRow,
  findFormerRepository,
  findRepository,
  insertRepository,
  listRepositories,
  lockRepositories,
  makeAllServicesDue,
  namesInRecovery,
  noteFormerRepository,
  recordChecked,
  recordControlProblem,
  type RepositoryRow,
} from '../store/repositories.ts';
import type { Store } from '../store/database.ts';
import type { Db, Tx } from '../store/tables.ts';
import { answerWith, makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';

/** The context of calls on repositories. */
export type RepositoryContext = ControlContext & {
  repositories: {
    sealer: Sealer;
    /** The program that reads and writes repositories. @throws ApiError UNAVAILABLE_HERE */
    program: () => PgBackRest;
    /** Has the engines read which repositories there are. */
    refresh: () => Promise<void>;
    /** The use of a repository, as the regions know it. */
    useOf: (id: string) => Promise<RepositoryUse>;
  };
};

/** The use of a repository in all regions. @param regions the states in it, by service */
export function useOf(regions: readonly ReadonlyMap<string, OffMachineState>[]): RepositoryUse {
  const states = regions.flatMap((known) => [...known.values()]);
  const safe = states.map(({ safeToMs }) => safeToMs).filter((ms) => ms !== null);
  const isKnown = states.length > 0 && safe.length === states.length;
  const covered = states.filter(({ backups }) => backups.length > 0);
  const backups = states.flatMap((state) => state.backups);
  return {
    services: covered.length,
    waiting: states.length - covered.length,
    lastBackupMs: backups.length === 0 ? null : Math.max(...backups.map((one) => one.takenMs)),
    backupBytes: backups.reduce((sum, { storageBytes }) => sum + storageBytes, 0),
    behindMs: isKnown ? Math.max(0, Date.now() - Math.min(...safe)) : null,
    backlogBytes: states.reduce((sum, { backlog }) => sum + backlog.bytes, 0),
    // One of them is enough: mostly they have the same.
    problem: states.find(({ problem }) => problem !== null)?.problem ?? null,
  };
}

/** @throws ApiError UNAVAILABLE_HERE without pgBackRest */
export function programOrRefuse({ program }: RepositorySource): PgBackRest {
  if (program !== null) return program;
  throw new ApiError(
    'UNAVAILABLE_HERE',
    'repositories need pgBackRest, which is not installed: apt-get install pgbackrest, ' +
      'or howdah up as root',
  );
}

export async function describeRepositories({
  store,
  repositories: { useOf },
}: RepositoryContext): Promise<RepositoryDocument[]> {
  const rows = await listRepositories(store.db);
  return Promise.all(rows.map(async (row) => repositoryDocument(row, await useOf(row.id))));
}

/** @throws ApiError NOT_FOUND */
export async function describeRepository(
  { store, repositories: { useOf } }: RepositoryContext,
  id: string,
): Promise<RepositoryDocument> {
  const row = await readRepository(store.db, id);
  return repositoryDocument(row, await useOf(row.id));
}

async function readRepository(db: Db, id: string): Promise<RepositoryRow> {
  const found = isId(id) ? await findRepository(db, id) : null;
  if (found !== null) return found;
  throw new ApiError(
    'NOT_FOUND',
    `no repository with that id exists: ${JSON.stringify(id.slice(0, 64))}; ` +
      'GET /repositories lists them',
  );
}

/** Adds a repository, once it can be written and belongs to no other installation. */
export async function createRepository(
  { store, repositories }: RepositoryContext,
  caller: Caller,
  { name, retention_days: days, take_over: takeOver, passphrase, ...fields }: CreateRepositoryBody,
): Promise<Outcome> {
  const { sealer, program, useOf } = repositories;
  const storage = storageOf(fields);
  const location = locationOf(storage);
  refuseMore(await listRepositories(store.db), name, location);
  const former = await formerOrNew(store.db, sealer, location);
  const { id, owner } = former;
  const repository = { id, name, storage, passphrase: passphrase ?? former.passphrase };
  const sealed = sealRepository(sealer, repository);
  const found = program();
  await refusing(async () => {
    await checkRepository(found, repository);
    if (caller.dryRun) return refuseOwned(found, repository, [owner, takeOver]);
    // If this is interrupted, the next attempt needs the passphrase and the owner.
    await noteFormerRepository(store.db, { id, location, sealed, owner });
    await claimRepository(found, repository, owner, takeOver ?? null);
  });
  const outcome = await makeChange(store, caller, async (tx) => {
    refuseMore(await lockRepositories(tx), name, location);
    await deleteFormerRepository(tx, location);
    const row = await insertRepository(tx, {
      id,
      name,
      type: storage.type,
      location,
      sealed,
      owner,
      retention_days: days ?? RETENTION_DAYS.default,
    });
    return answerWith(repositoryDocument(row, await useOf(row.id)));
  });
  await announce(store, repositories);
  return outcome;
}

/** The facts of a repository that was here before; otherwise those of a new one. */
async function formerOrNew(
  db: Db,
  sealer: Sealer,
  location: string,
): Promise<{ id: string; owner: string; passphrase: string }> {
  const former = await findFormerRepository(db, location);
  const opened = former === null ? null : openRepository(sealer, { ...former, name: location });
  if (former !== null && opened !== null)
    return { id: former.id, owner: former.owner, passphrase: opened.passphrase };
  const passphrase = randomBytes(PASSPHRASE_BYTES).toString('base64url');
  return { id: newId(), owner: newId(), passphrase };
}

/** The servers of all services switch WAL files each minute while there is a repository. */
async function announce(
  { db }: Store,
  { refresh }: RepositoryContext['repositories'],
): Promise<void> {
  await refresh();
  await makeAllServicesDue(db);
}

/** As hard to guess as the key of the encryption. */
const PASSPHRASE_BYTES = 32;

/** @throws ApiError for one too many, and one that is there already */
function refuseMore(rows: readonly RepositoryRow[], name: string, location: string): void {
  if (rows.length >= MAX_REPOSITORIES)
    throw new ApiError(
      'LIMIT_EXCEEDED',
      `repositories: the installation has ${rows.length}, of ${MAX_REPOSITORIES} that are ` +
        'allowed; delete one first',
    );
  if (rows.some((row) => row.name === name))
    throw new ApiError('CONFLICT', `name: there is a repository ${name} already; choose another`);
  const same = rows.find((row) => row.location === location);
  if (same !== undefined)
    throw new ApiError(
      'CONFLICT',
      `path: the repository ${same.name} is at ${location} already; choose another path`,
    );
}

/** Whether a repository can be written and still belongs to this installation. */
export async function checkOne(
  { store, repositories: { sealer, program, refresh, useOf } }: RepositoryContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  const row = await readRepository(store.db, id);
  const found = program();
  const repository = openOrRefuse(sealer, row);
  await refusing(async () => {
    await checkRepository(found, repository);
    try {
      await assertOwner(found, repository, row.owner);
    } catch (error) {
      // Nothing more is sent to a repository of another installation.
      if (error instanceof OtherOwner && !caller.dryRun) {
        await recordControlProblem(store.db, id, { text: error.message, isLost: true });
        await refresh();
      }
      throw error;
    }
  });
  return makeChange(store, caller, async (tx) => {
    await recordChecked(tx, row.id);
    const checked = await readRepository(tx, id);
    return answerWith(repositoryDocument(checked, await useOf(id)));
  });
}

/**
 * Sends no more to a repository; the backups in it stay, and it can be added again.
 *
 * @throws ApiError CONFLICT while services are being restored from it
 */
export async function deleteRepository(
  { store, repositories }: RepositoryContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  const outcome = await makeChange(store, caller, async (tx) => {
    const row = await readRepository(tx, id);
    await refuseInUse(tx, row);
    await noteFormerRepository(tx, row);
    await deleteRepositoryRow(tx, row.id);
    return { operationId: null };
  });
  await announce(store, repositories);
  return outcome;
}

/** The most names in a message. */
const NAMES_SAID = 5;

async function refuseInUse(tx: Tx, { id, name }: RepositoryRow): Promise<void> {
  const restored = await namesInRecovery(tx, id, NAMES_SAID);
  if (restored.length > 0)
    throw new ApiError(
      'CONFLICT',
      `the repository ${name} cannot be removed: services are being restored from it ` +
        `(${restored.join(', ')}); wait until they are READY, or delete them first`,
    );
}

/** The recovery kit of a repository: with it alone, an installation is restored from there. */
export function readRecoveryKit(
  { store, repositories: { sealer } }: RepositoryContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  return makeChange(store, caller, async (tx) => {
    const row = await readRepository(tx, id);
    const { name, storage, passphrase } = openOrRefuse(sealer, row);
    const kit: RecoveryKit = {
      howdah: 'recovery kit',
      installation_id: row.owner,
      repository: { name, ...fieldsOf(storage) },
      passphrase,
    };
    return answerWith(kit);
  });
}

function openOrRefuse(sealer: Sealer, row: RepositoryRow): Repository {
  const repository = openRepository(sealer, row);
  if (repository !== null) return repository;
  throw new ApiError(
    'CONFLICT',
    `the credentials of the repository ${row.name} cannot be read: HOWDAH_HOME/secrets.key is ` +
      'not the file it was; delete the repository and add it again',
  );
}

async function refuseOwned(
  program: PgBackRest,
  repository: Repository,
  allowed: readonly (string | undefined)[],
): Promise<void> {
  const owner = await readOwner(program, repository);
  if (owner !== null && !allowed.includes(owner.installation)) throw ownedBy(owner);
}

/** A problem of a repository is one of the request that names it. */
export async function refusing<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof RepositoryProblem) throw new ApiError('INVALID_REQUEST', error.message);
    throw error;
  }
}

// The credentials of repositories, as they are in the metadata database and in recovery kits.

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
