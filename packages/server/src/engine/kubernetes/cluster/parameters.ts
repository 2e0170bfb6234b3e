/** The settings of PostgreSQL as CloudNativePG takes them, and those that a recovery needs. */
import { SERVICE_SIZES } from '@howdah/contract';
import { serverSettings } from '../../../domain/postgres/settings.ts';
import type { Desired } from './desired-state.ts';

/**
 * Parameters that CloudNativePG sets itself and refuses in a Cluster
 * (`FixedConfigurationParameters` of its `pkg/postgres/configuration.go`), as far as we set them.
 */
const FIXED: ReadonlySet<string> = new Set([
  'logging_collector',
  'log_destination',
  'log_directory',
  'log_filename',
  'log_file_mode',
  'log_rotation_age',
  'log_rotation_size',
  'shared_preload_libraries',
]);

/** @param settings with values as a configuration file takes them: strings in quotes */
export function clusterParameters(
  settings: Readonly<Record<string, string>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(settings)
      .filter(([name]) => !FIXED.has(name))
      .map(([name, value]) => [name, unquoted(value)]),
  );
}

function unquoted(value: string): string {
  const inside = /^'(.*)'$/s.exec(value)?.[1];
  return inside === undefined ? value : inside.replaceAll("''", "'");
}

/**
 * WAL that a primary keeps for standbys that are away: a node of a read replica set cannot have a
 * slot (docs/cloudnativepg.md, fact 32). A sixteenth of the volume; of a small one, up to an eighth
 * for the 512 MB that are the default of CloudNativePG.
 */
export function keptWal(storageGb: number): string {
  const volumeMb = storageGb * 1000;
  return `${Math.floor(Math.max(volumeMb / 16, Math.min(512, volumeMb / 8)))}MB`;
}

/**
 * When a standby that has found no WAL tries again. With the 5 s of PostgreSQL, a writer waits for
 * that long once more, whose only synchronous standby is the former primary (0056). Each time, the
 * archive is asked first.
 */
export const RETRY = { wal_retrieve_retry_interval: '1s' } as const;

/**
 * The size of a volume for WAL. It has room for all WAL that the settings of a server of this size
 * keep, and for some that waits for the archive.
 */
export const walVolumeGb = (storageGb: number): number => Math.max(2, Math.ceil(storageGb / 2));

// The settings that a recovery of WAL needs at least as large as the server that wrote it had them.
// Otherwise a standby stops to follow, and a recovery to a moment waits forever.
// https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-ADMIN

const LIMITS = ['max_connections', 'max_worker_processes', 'max_wal_senders'] as const;

export type Limits = Readonly<Record<string, number>>;

type Sized = Pick<Desired, 'size' | 'major' | 'storageGb'> &
  Readonly<{ preload: readonly string[] }>;

/** The limits of a server. */
export function limitsOf({ size, major, preload, storageGb }: Sized): Limits {
  const settings = serverSettings({
    size: size ?? 'shared',
    major: major ?? 0,
    extensions: [...preload],
    storageGb,
  });
  return Object.fromEntries(LIMITS.map((name) => [name, Number(settings[name])]));
}

/** For each limit the largest value. */
export const largestOf = (all: readonly Limits[]): Limits =>
  Object.fromEntries(
    LIMITS.map((name) => [name, Math.max(...all.map((limits) => limits[name] ?? 0))]),
  );

/** Limits for WAL of a server that had any size meanwhile. */
export const limitsOfAnySize = (sized: Sized): Limits =>
  largestOf(SERVICE_SIZES.map((size) => limitsOf({ ...sized, size })));

/** As settings of PostgreSQL. */
export const asSettings = (limits: Limits): Record<string, string> =>
  Object.fromEntries(Object.entries(limits).map(([name, least]) => [name, String(least)]));
