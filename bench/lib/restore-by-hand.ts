/** Services that are restored with pgBackRest by hand, one after the other. */
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { forkRecoveryConf } from '../../packages/server/src/engine/postgres/recovery-conf.ts';
import { isWalFile } from '../../packages/server/src/engine/postgres/data/wal-files.ts';
import { listBackups } from '../../packages/server/src/engine/local/repository/stanza.ts';
import { repositoryOptions } from '../../packages/server/src/repository/options.ts';
import type { PgBackRest, Repository } from '../../packages/server/src/repository/repository.ts';
import {
  connectBare,
  makeDirectories,
  removeBare,
  startBare,
  writeFiles,
  type BareKit,
  type BareServer,
} from './bare.ts';
import { atEnd } from './cleanup.ts';
import { time } from './measure.ts';
import { run } from './run.ts';

/** Processes of pgBackRest, as Howdah has them. */
const PROCESSES = '2';
const DEADLINE_MS = 3_600_000;

/** A repository in a directory, and the program that reads it. */
type Source = Readonly<{ program: PgBackRest; repository: Repository; directory: string }>;

/** The size of the data; how long its files and its WAL took; and that until all can be used. */
export type ByHand = Readonly<{ bytes: number; filesMs: number; loginMs: number }>;

/**
 * Restores the newest backup of each service, starts a server of it, which recovers over the WAL,
 * and connects. All servers are removed at the end.
 */
export async function restoreByHand(
  kit: BareKit,
  source: Source,
  ids: readonly string[],
): Promise<ByHand> {
  let [bytes, filesMs, loginMs] = [0, 0, 0];
  const ends: (() => Promise<void>)[] = [];
  for (const id of ids) {
    const server = await makeDirectories(kit);
    ends.push(atEnd(() => removeBare(kit, server)));
    const files = await time(() => fetchFiles(source, id, server));
    const login = await time(() => startAndSelect(kit, server, files.result.backupLabel));
    bytes += files.result.dataBytes;
    filesMs += files.ms;
    loginMs += files.ms + login.ms;
  }
  for (const end of ends) await end();
  return { bytes, filesMs, loginMs };
}

async function fetchFiles(
  { program: { program, user }, repository, directory }: Source,
  id: string,
  { paths: { root, data } }: BareServer,
): Promise<{ dataBytes: number; backupLabel: string | null }> {
  const { values } = repositoryOptions(repository);
  const options = { ...values, 'process-max': PROCESSES, 'log-level-file': 'off' };
  const env = Object.fromEntries(
    Object.entries(options).map(([name, value]) => [
      `PGBACKREST_${name.toUpperCase().replaceAll('-', '_')}`,
      value,
    ]),
  );
  await mkdir(data, { mode: 0o700 });
  if (user !== null) await run('chown', [`${user.uid}:${user.gid}`, root, data]);
  const stanza = [`--stanza=${id}`, `--pg1-path=${data}`, '--no-config'];
  const pgbackrest = (...words: string[]) =>
    run(program, [...words, ...stanza], {
      env: { ...process.env, ...env },
      deadlineMs: DEADLINE_MS,
    });
  await pgbackrest('restore', '--type=none');
  const backups = await listBackups(
    { program: { program, version: '', user, ioTimeoutSeconds: 15 } },
    id,
    repository,
  );
  const [newest] = backups;
  if (newest === undefined) throw new Error(`${id} has no backup`);
  const files = await readdir(join(directory, 'archive', id), { recursive: true });
  const names = files.map((file) => file.split('/').at(-1)?.slice(0, 24) ?? '').filter(isWalFile);
  for (const name of names.filter((one) => one >= newest.firstWal))
    await pgbackrest('archive-get', name, join(data, 'pg_wal', name));
  return newest;
}

async function startAndSelect(
  kit: BareKit,
  server: BareServer,
  backupLabel: string | null,
): Promise<void> {
  const { root, data } = server.paths;
  if (backupLabel !== null) await writeFile(join(data, 'backup_label'), backupLabel);
  await writeFile(join(data, 'postgresql.auto.conf'), forkRecoveryConf(null));
  await writeFile(join(data, 'recovery.signal'), '');
  await writeFiles(kit, server, 'ours');
  const { owner } = kit.machine;
  if (owner !== null) await run('chown', ['-R', `${owner.uid}:${owner.gid}`, root]);
  await startBare(kit, server);
  const client = await connectBare(server);
  await client.query('select 1');
  client.connection.stream.destroy();
}
