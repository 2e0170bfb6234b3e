/**
 * Which metadata database an installation has. Its home records it: a variable of a shell must not
 * exchange it, since the services of another database would be taken for all there are.
 */
import { join } from 'node:path';
import { ConfigError } from './config.ts';
import { firstKeyPath, readCredentials, readJson } from './installation.ts';
import { writeDurably } from './lib/durable-files.ts';
import { isErrno } from './lib/processes.ts';

/** The URL of the database, which may hold a password; null: a PostgreSQL of our own. */
export type MetadataPlace = string | null;

/** `project` is the operator's: the database is recognised by it, wherever it moves. */
export type MetadataRecord = Readonly<{ place: MetadataPlace; project: string }>;

const recordPath = (home: string): string => join(home, 'metadata-database.json');

/** The record of a home; null: it was never started, or not since there are records. */
export async function readMetadataRecord(home: string): Promise<MetadataRecord | null> {
  const parsed = await readJson(recordPath(home));
  if (parsed === null) return null;
  const [place, project]: unknown[] = [
    Reflect.get(parsed, 'place'),
    Reflect.get(parsed, 'project'),
  ];
  if (typeof project !== 'string' || (place !== null && typeof place !== 'string'))
    throw new Error(`${recordPath(home)}: lacks place or project; restore it from a backup`);
  return { place, project };
}

/** The URL may hold a password, so the file is its owner's alone. */
export async function recordMetadata(home: string, record: MetadataRecord): Promise<void> {
  const before = await readMetadataRecord(home);
  if (before?.place === record.place && before.project === record.project) return;
  await writeDurably(recordPath(home), `${JSON.stringify(record, null, 2)}\n`, 0o600).catch(
    (error: unknown) => {
      // The next start writes it: a full disk does not stop a control plane.
      if (!isErrno(error, 'ENOSPC', 'EDQUOT')) throw error;
    },
  );
}

/**
 * The metadata database of an installation, as its home records it.
 *
 * @param asked the one that a setting names; null: none
 * @throws ConfigError when that is another one
 */
export async function findMetadataPlace(
  home: string,
  asked: MetadataPlace,
): Promise<MetadataPlace> {
  const chosen = choosePlace(await readMetadataRecord(home), asked);
  if (chosen !== 'refused') return chosen.place;
  throw new ConfigError(
    `HOWDAH_DATABASE_URL: found ${nameOf(asked)}; the metadata database of ${home} is another ` +
      'one: howdah metadata-database shows it. Unset HOWDAH_DATABASE_URL to go on with that one; ' +
      'to change it: howdah metadata-database "$HOWDAH_DATABASE_URL"',
  );
}

/** The same database with another user or password is no other database. */
export function choosePlace(
  recorded: Pick<MetadataRecord, 'place'> | null,
  asked: MetadataPlace,
): { place: MetadataPlace } | 'refused' {
  if (recorded === null) return { place: asked };
  if (asked === null) return { place: recorded.place };
  const isSame = recorded.place !== null && nameOf(recorded.place) === nameOf(asked);
  return isSame ? { place: asked } : 'refused';
}

/** A metadata database in words, without its user and password. */
export function nameOf(place: MetadataPlace): string {
  if (place === null) return 'a PostgreSQL of its own';
  const { hostname, port, pathname, searchParams } = new URL(place);
  const host = searchParams.get('host') ?? (hostname === '' ? 'localhost' : hostname);
  const database = decodeURIComponent(pathname.slice(1));
  const shownPort = searchParams.get('port') ?? (port === '' ? '5432' : port);
  return `the database ${database || 'of its user'} on ${host}:${shownPort}`;
}

/**
 * The project by which the metadata database of a home is recognised; null: the home is new, or has
 * lost its credentials.
 */
export async function findOwnProject(home: string): Promise<string | null> {
  const record = await readMetadataRecord(home);
  if (record !== null) return record.project;
  const credentials = (await readCredentials(home)) ?? (await readCredentials(home, firstKeyPath));
  return credentials?.project_id ?? null;
}
