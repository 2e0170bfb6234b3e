/**
 * The settings that a recovery of WAL needs at least as large as the server that wrote it had them.
 * Otherwise a standby stops to follow, and a recovery to a moment waits forever.
 * https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-ADMIN
 */
import { SERVICE_SIZES } from '@howdah/contract';
import { serverSettings } from '../../../domain/postgres/settings.ts';
import type { Desired } from './desired.ts';

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
