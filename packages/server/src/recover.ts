/**
 * Rebuilds an installation on an empty machine from a repository. Here only the data of the control
 * plane comes back; it restores the services at its next start, PROD first.
 */
import { mkdir, rm, writeFile } from './engine/local/host/root-files.ts';
import { join } from 'node:path';
import { RecoveryKitSchema, type RecoveryKit } from '@howdah/contract';
import type { PoolClient } from 'pg';
import { Value } from 'typebox/value';
import type { ServiceRow } from './domain/service/row.ts';
import { upgradesOf, withDataOf } from './domain/service/upgrades.ts';
import { prepareMachine } from './engine/local/host/machine.ts';
import { stopStore } from './engine/local/postgres/store-instance.ts';
import { listBackups, type StoredBackup } from './engine/local/repository/stanza.ts';
import { recoveryPath } from './installation.ts';
import { writeDurably } from './lib/durable-files.ts';
import { newId } from './lib/ids.ts';
import { readOrNull } from './lib/processes.ts';
import { getObject } from './repository/objects.ts';
import { claimRepository } from './repository/owner.ts';
import { findPgBackRest } from './repository/pgbackrest.ts';
import { CONTROL_OBJECT, RepositoryProblem } from './repository/repository.ts';
import { stanzaOf } from './repository/stanzas.ts';
import { locationOf } from './domain/repository/storage.ts';
import { repositoryOf } from './services/repositories.ts';
import { restoreControl, type LostData } from './engine/local/admin/control-backup.ts';

/** The services that are recovered, and their moment. */
export type RecoverOptions = Readonly<{
  /** The ids or names of the services; null: all. The others can be recovered later. */
  only: readonly string[] | null;
  /** The moment whose state they get, as a date-time; null: the newest. */
  at: string | null;
}>;

/** Called when a part begins; null: the last one has ended. */
type Progress = (part: string | null) => void;

/**
 * Restores the data of the control plane from the repository of a recovery kit, and takes the
 * repository over from the installation that was lost.
 *
 * @returns a sentence for each service that will be restored, and each contradiction
 * @throws Error for a kit that is none, and with what is in the way; it may be called again
 */
export async function recover(
  home: string,
  kitText: string,
  options: RecoverOptions,
  begin: Progress,
): Promise<string[]> {
  const kit = parseKit(kitText);
  if (options.at !== null && !(Date.parse(options.at) <= Date.now()))
    throw new Error(`--at: found ${options.at}; it must be a date-time that is over`);
  const program = await findPgBackRest();
  if (program === null)
    throw new Error('pgBackRest is not installed: apt-get install pgbackrest, then try again');
  const repository = repositoryOf(kit);
  const location = locationOf(repository.storage);
  begin('fetch the data of the control plane');
  const contents = await getObject(program, repository, CONTROL_OBJECT);
  if (contents === null)
    throw new RepositoryProblem(
      `${location} has no data of a control plane: ` +
        'the kit is of another repository, or its first minute had not passed',
    );
  await mkdir(home, { recursive: true, mode: 0o755 });
  const owner = await beginRecovery(home);
  const path = join(home, 'recovered-control.gz');
  await writeFile(path, contents, { mode: 0o600 });
  begin('take over the repository');
  await claimRepository(program, repository, owner, kit.installation_id);
  begin('restore the metadata database');
  const find: FindBackups = (stanza) => listBackups({ program }, stanza, repository);
  const sentences = await restoreControl(home, path, restoreFrom(location, owner, options, find));
  await rm(path);
  await rm(recoveryPath(home));
  begin(null);
  return sentences;
}

/**
 * Notes that a recovery is under way, with the owner that the repository gets. A recovery that was
 * interrupted keeps its owner, and its metadata database, which may be incomplete, is removed.
 */
async function beginRecovery(home: string): Promise<string> {
  const noted = await readOrNull(recoveryPath(home));
  if (noted === null) {
    const owner = newId();
    await writeDurably(recoveryPath(home), JSON.stringify({ owner }), 0o600);
    return owner;
  }
  const machine = await prepareMachine(home);
  await stopStore(machine);
  await rm(machine.layout.store.root, { recursive: true, force: true });
  const parsed: unknown = JSON.parse(noted);
  return String(Reflect.get(Object(parsed), 'owner'));
}

function parseKit(text: string): RecoveryKit {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    parsed = null;
  }
  if (!Value.Check(RecoveryKitSchema, parsed))
    throw new Error('the file is no recovery kit: howdah repo kit prints one');
  return parsed;
}

/**
 * The services are restored from the repository; spares are not needed. Those that are not wanted
 * now stay known: without their data they are UNSTABLE. Deleted services can be restored later.
 */
const restoreFrom =
  (location: string, owner: string, { only, at }: RecoverOptions, find: FindBackups): LostData =>
  async (client, { directories, regions }) => {
    const repository = await takeRepository(client, location, owner);
    const lost = 'region_code = any ($2) and id <> all ($1)';
    await client.query(
      `update services set reachable = false, kept = jsonb_build_object('repository', r.id,
         'since', now(), 'until', now() + interval '1 day' *
         coalesce(services.backup_retention_days, r.retention_days), 'isRemoved', false)
       from repositories r
       where r.id = $3 and region_code = any ($2) and services.id <> all ($1)
         and project_id is not null and deleted_at is not null and parent_id is null
         and provisioned and kept is null`,
      [directories, regions, repository],
    );
    await client.query(
      `delete from services where ${lost} and (project_id is null or (deleting and kept is null))`,
      [directories, regions],
    );
    const { rows } = await client.query<Lost>(
      `update services set reachable = false,
         recovery = case
           when provisioned and ($3::text[] is null or id = any ($3) or name = any ($3))
           then jsonb_build_object('repository', $4::text, 'id', $5::text, 'at', $6::text) end
       where ${lost} and parent_id is null and not deleting
       returning id, name, provisioned, recovery is not null as wanted, pg_version, upgrade,
         upgraded`,
      [directories, regions, only, repository, newId(), at],
    );
    for (const name of only ?? [])
      if (!rows.some((row) => row.wanted && [row.id, row.name].includes(name)))
        throw new Error(`--only: found ${name}; the services are ${rows.map(named).join(', ')}`);
    // Each is restored as its first server, and its standbys are made again from that.
    await client.query('delete from recorded_primaries where service_id = any ($1)', [
      rows.map(({ id }) => id),
    ]);
    const sentences: string[] = [];
    for (const row of rows) {
      const version = row.wanted ? await chooseData(client, row, at, find) : null;
      const again = version === null ? '' : `, with the PostgreSQL ${version} of its backup`;
      sentences.push(`service ${named(row)} ${fateOf(row)}${again}`);
    }
    return sentences;
  };

type Lost = { id: string; name: string; provisioned: boolean; wanted: boolean } & Pick<
  ServiceRow,
  'pg_version' | 'upgrade' | 'upgraded'
>;

/** The backups in a stanza, newest first. */
type FindBackups = (stanza: string) => Promise<readonly Pick<StoredBackup, 'takenMs' | 'major'>[]>;

/**
 * Chooses the data of an upgraded service that comes back: the repository may have no backup since
 * its upgrade, or none that is old enough.
 *
 * @returns the version that it gets, if that is not the one that is recorded
 */
async function chooseData(
  client: PoolClient,
  row: Lost,
  at: string | null,
  find: FindBackups,
): Promise<number | null> {
  if (row.upgrade === null && row.upgraded === null) return null;
  const untilMs = at === null ? Infinity : Date.parse(at);
  for (const upgradeId of upgradesOf(row)) {
    const backups = await find(stanzaOf(row.id, upgradeId));
    const found = backups.find(({ takenMs }) => takenMs <= untilMs);
    if (found === undefined) continue;
    const { upgrade = null, upgraded = null } = withDataOf(row, upgradeId, found.major);
    await client.query(
      `update services set upgrade = $2, upgraded = $3,
         recovery = recovery || jsonb_build_object('upgrade', $4::text) where id = $1`,
      [row.id, upgrade, upgraded, upgradeId],
    );
    await client.query('update services set pg_version = $2 where $1 in (id, parent_id)', [
      row.id,
      found.major,
    ]);
    return found.major === row.pg_version ? null : found.major;
  }
  return null;
}

const named = ({ id, name }: Lost): string => `${id} (${name})`;

function fateOf({ id, provisioned, wanted }: Lost): string {
  if (wanted) return 'will be restored';
  return provisioned
    ? `is left: howdah service recover ${id} restores it later`
    : 'had no data yet, and is made again';
}

/** Makes the repository that the data came from the new installation's. @returns its id */
async function takeRepository(
  client: PoolClient,
  location: string,
  owner: string,
): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    'update repositories set owner = $2, is_lost = false where location = $1 returning id',
    [location, owner],
  );
  const [found] = rows;
  if (found === undefined)
    throw new Error(`the data of the control plane does not know the repository ${location}`);
  return found.id;
}
