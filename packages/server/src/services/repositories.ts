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
import { fieldsOf, locationOf, storageOf } from '../domain/repository/storage.ts';
import type { OffMachineState } from '../engine/off-machine.ts';
import type { Sealer } from '../events/sealer.ts';
import { newId } from '../lib/ids.ts';
import { assertOwner, claimRepository, ownedBy, readOwner } from '../repository/owner.ts';
import { checkRepository } from '../repository/objects.ts';
import { RepositoryProblem, type PgBackRest, type Repository } from '../repository/repository.ts';
import type { RepositorySource } from '../repository/source.ts';
import {
  deleteRepositoryRow,
  findRepository,
  insertRepository,
  listRepositories,
  lockRepositories,
  makeAllServicesDue,
  recordChecked,
  type RepositoryRow,
} from '../store/repositories.ts';
import type { Store } from '../store/database.ts';
import type { Db } from '../store/tables.ts';
import { makeChange, type Caller, type Outcome } from './change.ts';
import type { ControlContext } from './context.ts';
import { openRepository, sealRepository } from './repository-secrets.ts';

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
  { name, retention_days: days, take_over: takeOver, ...fields }: CreateRepositoryBody,
): Promise<Outcome> {
  const { sealer, program, useOf } = repositories;
  const storage = storageOf(fields);
  refuseMore(await listRepositories(store.db), name, locationOf(storage));
  const repository: Repository = {
    id: newId(),
    name,
    storage,
    passphrase: randomBytes(PASSPHRASE_BYTES).toString('base64url'),
  };
  const owner = newId();
  const found = program();
  await refusing(async () => {
    await checkRepository(found, repository);
    if (caller.dryRun) await refuseOwned(found, repository, takeOver ?? null);
    else await claimRepository(found, repository, owner, takeOver ?? null);
  });
  const outcome = await makeChange(store, caller, async (tx) => {
    refuseMore(await lockRepositories(tx), name, locationOf(storage));
    const row = await insertRepository(tx, {
      id: repository.id,
      name,
      type: storage.type,
      location: locationOf(storage),
      sealed: sealRepository(sealer, repository),
      owner,
      retention_days: days ?? RETENTION_DAYS.default,
    });
    return outcomeOf(repositoryDocument(row, await useOf(row.id)));
  });
  await announce(store, repositories);
  return outcome;
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
  { store, repositories: { sealer, program, useOf } }: RepositoryContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  const row = await readRepository(store.db, id);
  const found = program();
  const repository = openOrRefuse(sealer, row);
  await refusing(async () => {
    await checkRepository(found, repository);
    await assertOwner(found, repository, row.owner);
  });
  return makeChange(store, caller, async (tx) => {
    await recordChecked(tx, row.id);
    const checked = await readRepository(tx, id);
    return outcomeOf(repositoryDocument(checked, await useOf(id)));
  });
}

/** Forgets a repository; the backups in it stay. */
export async function deleteRepository(
  { store, repositories }: RepositoryContext,
  caller: Caller,
  id: string,
): Promise<Outcome> {
  const outcome = await makeChange(store, caller, async (tx) => {
    await deleteRepositoryRow(tx, (await readRepository(tx, id)).id);
    return { operationId: null };
  });
  await announce(store, repositories);
  return outcome;
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
    return outcomeOf(kit);
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
  takeOver: string | null,
): Promise<void> {
  const owner = await readOwner(program, repository);
  if (owner !== null && owner.installation !== takeOver) throw ownedBy(owner);
}

/** A problem of a repository is one of the request that names it. */
async function refusing(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (error instanceof RepositoryProblem) throw new ApiError('INVALID_REQUEST', error.message);
    throw error;
  }
}

const outcomeOf = (document: object): Outcome => ({
  operationId: null,
  doc: JSON.stringify(document),
});
