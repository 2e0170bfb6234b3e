/** The data of a service in a repository, which is a stanza of pgBackRest. */
import { runPgBackRest, type Call, type Result } from '../../../repository/run.ts';
import { RepositoryProblem, type Repository } from '../../../repository/repository.ts';
import { ERRORS, PgBackRestError, problemOf } from '../../../repository/problem.ts';
import type { Snapshot } from '../backup/snapshots.ts';
import { isWalFile } from '../../postgres/data/wal-files.ts';
import type { ShipContext, KnownBackup } from './state.ts';

/** Processes of pgBackRest that transfer at the same time. */
const PROCESSES = '2';

/**
 * Common to all commands of a stanza. Small files are bundled, changed blocks are stored of large
 * ones; whether a file has changed is found by its checksum, since clones have new times.
 */
const OPTIONS = {
  online: 'n',
  delta: 'y',
  'compress-type': 'zst',
  'repo1-bundle': 'y',
  'repo1-block': 'y',
  'process-max': PROCESSES,
  'expire-auto': 'n',
} as const;

/** Runs a command of pgBackRest for a stanza. @throws RepositoryProblem */
export async function runForService(
  { program }: Pick<ShipContext, 'program'>,
  stanza: string,
  repository: Repository,
  { options, ...call }: Call,
): Promise<Result> {
  return runPgBackRest(program, repository, {
    ...call,
    options: { ...OPTIONS, stanza, ...options },
  });
}

/**
 * Makes a stanza, or adds to it the system identifier that its data has got since: a service that
 * was not provisioned when its machine was lost is made again.
 *
 * @param data a data directory of it
 */
export async function ensureStanza(
  context: Pick<ShipContext, 'program'>,
  stanza: string,
  repository: Repository,
  data: string,
  signal: AbortSignal,
): Promise<void> {
  const call = (command: string): Call => ({
    command: [command],
    asked: 'take the service',
    options: { 'pg1-path': data },
    readsAll: true,
    signal,
  });
  try {
    await runForService(context, stanza, repository, call('stanza-create'));
  } catch (error) {
    if (!(error instanceof PgBackRestError && error.code === ERRORS.stanzaMismatch)) throw error;
    await runForService(context, stanza, repository, call('stanza-upgrade'));
  }
}

/** A backup, with what pgBackRest leaves out of it: the facts of the snapshot, and its label. */
export type StoredBackup = KnownBackup & {
  facts: Snapshot;
  /** The file backup_label; null: the snapshot has none. */
  backupLabel: string | null;
  dataBytes: number;
  /** The major version of PostgreSQL. */
  major: number;
};

const encode = (text: string): string => Buffer.from(text, 'utf8').toString('base64');
const decode = (text: string): string => Buffer.from(text, 'base64').toString('utf8');

/** The facts of a snapshot as annotations of its backup. */
export function annotations(snapshot: Snapshot, backupLabel: string | null): string[] {
  return [
    `--annotation=snapshot=${encode(JSON.stringify(snapshot))}`,
    ...(backupLabel === null ? [] : [`--annotation=label=${encode(backupLabel)}`]),
  ];
}

/** The status of a stanza that cannot be read; a missing one has another. */
const UNREADABLE = 99;
/** More than the description of all backups of a service takes. */
const INFO_MAX_BYTES = 64e6;
/** Callers of the API may wait for it. */
const INFO_DEADLINE_MS = 120_000;

/** The backups in a stanza, newest first. @throws RepositoryProblem */
export async function listBackups(
  context: Pick<ShipContext, 'program'>,
  stanza: string,
  repository: Repository,
): Promise<StoredBackup[]> {
  const { stdout } = await runForService(context, stanza, repository, {
    command: ['info', '--output=json'],
    asked: 'list the backups of the service',
    deadlineMs: INFO_DEADLINE_MS,
    maxBytes: INFO_MAX_BYTES,
  });
  const stanzas = parseInfo(stdout.toString('utf8'), repository);
  const [found] = Array.isArray(stanzas) ? stanzas : [];
  const repositories = property(found, 'repo');
  const status = property(Array.isArray(repositories) ? repositories[0] : null, 'status');
  if (property(status, 'code') === UNREADABLE)
    throw problemOf(repository, 'be read', UNREADABLE, String(property(status, 'message')));
  const [backups, databases] = [property(found, 'backup'), property(found, 'db')];
  return (Array.isArray(backups) ? backups : [])
    .flatMap((backup) => parseBackup(backup, Array.isArray(databases) ? databases : []) ?? [])
    .toReversed();
}

function parseInfo(text: string, { name }: Repository): unknown {
  try {
    // pgBackRest does not escape the line ends of its messages.
    return JSON.parse(text.replaceAll(/\p{Cc}/gu, ' '));
  } catch {
    throw new RepositoryProblem(
      `the repository ${name} cannot list the backups of the service: what is in it was not ` +
        'written by Howdah',
    );
  }
}

/** @returns null: not one of ours, or one that is damaged */
function parseBackup(backup: unknown, databases: readonly unknown[]): StoredBackup | null {
  const annotation = property(backup, 'annotation');
  const [facts, label] = [property(annotation, 'snapshot'), property(annotation, 'label')];
  if (typeof facts !== 'string' || property(backup, 'error') === true) return null;
  const parsed = parseFacts(decode(facts));
  const name = String(property(backup, 'label'));
  if (parsed === null || !/^[\w-]+$/.test(name)) return null;
  const info = property(backup, 'info');
  const databaseId = property(property(backup, 'database'), 'id');
  const database = databases.find((one) => property(one, 'id') === databaseId);
  const major = Number.parseInt(String(property(database, 'version')), 10);
  const dataBytes = Number(property(info, 'size') ?? 0);
  if (!Number.isSafeInteger(major) || !(dataBytes >= 0)) return null;
  return {
    label: name,
    snapshot: parsed.id,
    takenMs: parsed.takenMs,
    firstWal: parsed.firstWal,
    isInitial: parsed.kind === 'initial',
    type: property(backup, 'type') === 'full' ? 'full' : 'incr',
    storageBytes: Number(property(property(info, 'repository'), 'delta') ?? 0),
    durationSeconds: durationOf(property(backup, 'timestamp')),
    dataBytes,
    facts: parsed,
    backupLabel: typeof label === 'string' ? decode(label) : null,
    major,
  };
}

/** The seconds between the two moments of pgBackRest; undefined: they are none. */
function durationOf(timestamp: unknown): number | undefined {
  const seconds = Number(property(timestamp, 'stop')) - Number(property(timestamp, 'start'));
  return Number.isSafeInteger(seconds) && seconds >= 0 ? seconds : undefined;
}

const POSITION = /^[0-9A-F]{1,8}\/[0-9A-F]{1,8}$/;

/**
 * The facts of a snapshot, which name a directory and WAL files on this machine: they may come from
 * another installation. A stored snapshot has its data, whatever it was made of. The initial one
 * may have no WAL file and no position.
 *
 * @returns null: they are none
 */
export function parseFacts(text: string): Snapshot | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return null;
  }
  const textOf = (name: keyof Snapshot, isValid: (text: string) => boolean): string | null => {
    const text = property(parsed, name);
    return typeof text === 'string' && isValid(text) ? text : null;
  };
  const id = textOf('id', (text) => /^[\w-]{1,100}$/.test(text));
  const firstWal = textOf('firstWal', (text) => text === '' || isWalFile(text));
  const walPosition = textOf('walPosition', (text) => text === '' || POSITION.test(text));
  const takenMs = Number(property(parsed, 'takenMs'));
  if (id === null || firstWal === null || walPosition === null) return null;
  if (Number.isNaN(new Date(takenMs).getTime())) return null;
  return {
    id,
    kind: property(parsed, 'kind') === 'scheduled' ? 'scheduled' : 'initial',
    takenMs,
    firstWal,
    walPosition,
    storageBytes: Number(property(parsed, 'storageBytes')) || 0,
    template: null,
    systemIdentifier: null,
  };
}

function property(of: unknown, name: string): unknown {
  return typeof of === 'object' && of !== null ? Reflect.get(of, name) : undefined;
}
