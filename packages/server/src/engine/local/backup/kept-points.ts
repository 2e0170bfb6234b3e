/**
 * The points in time that stay when archived WAL gives way to the quota. The password of a database
 * is enough to write WAL without end, which would remove every point from before. So a snapshot
 * from before the growth and the WAL after it stay for a set time, and the WAL of the growth goes.
 * Kept points count towards the quota: the service becomes read-only before they are removed
 * (docs/decisions/0089-kept-points.md).
 */
import { dirname, join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { Type, type Static } from 'typebox';
import { Check } from 'typebox/value';
import { writeDurably } from '../../../lib/durable-files.ts';
import { readOrNull } from '../../../lib/processes.ts';
import type { InstancePaths } from '../host/layout.ts';
import { WAL_FILE_BYTES } from '../../postgres/data/wal-files.ts';
import type { Snapshot } from './snapshots.ts';

/** How long points from before a growth stay, from the moment when WAL first gives way. */
export const KEPT_MS = 6 * 3_600_000;
/** A younger snapshot may have been taken while the service grew already. */
const BEFORE_GROWTH_MS = 3_600_000;
/** The WAL that stays takes this part of the quota at most. */
const KEPT_WAL = 0.25;

const KEPT = Type.Object({
  /** The id of the entry in the audit log. */
  id: Type.String(),
  sinceMs: Type.Number(),
  untilMs: Type.Number(),
  /** The id of the snapshot, and the first WAL file that it needs. */
  snapshot: Type.String(),
  firstWal: Type.String(),
  /** The first WAL file that does not stay; null: all that there was. */
  endWal: Type.Union([Type.String(), Type.Null()]),
  /** WAL files from here on are there again; null: nothing has been removed yet. */
  againWal: Type.Union([Type.String(), Type.Null()]),
  /** How often WAL gave way, and when last. */
  count: Type.Integer(),
  lastMs: Type.Number(),
});

/** A snapshot and WAL files that stay, and what went. */
export type KeptPoints = Static<typeof KEPT>;

/**
 * Chooses what stays from now on: the newest snapshot from before the growth, and as much of the
 * WAL after it as a part of the quota holds, oldest first.
 *
 * @param snapshots newest first
 * @param archived the names of archived WAL files in their order
 * @returns null: there is no snapshot
 */
export function chooseKeptPoints(
  snapshots: readonly Pick<Snapshot, 'id' | 'takenMs' | 'firstWal'>[],
  archived: readonly string[],
  quotaBytes: number,
  nowMs: number,
): KeptPoints | null {
  const kept =
    snapshots.find(({ takenMs }) => takenMs <= nowMs - BEFORE_GROWTH_MS) ?? snapshots.at(-1);
  if (kept === undefined) return null;
  const following = archived.filter((wal) => wal >= kept.firstWal);
  return {
    id: randomUUID(),
    sinceMs: nowMs,
    untilMs: nowMs + KEPT_MS,
    snapshot: kept.id,
    firstWal: kept.firstWal,
    endWal: following[Math.floor((quotaBytes * KEPT_WAL) / WAL_FILE_BYTES)] ?? null,
    againWal: null,
    count: 0,
    lastMs: nowMs,
  };
}

/** Whether a WAL file stays. */
export const isKept = (wal: string, kept: KeptPoints | null): boolean =>
  kept !== null && wal >= kept.firstWal && (kept.endWal === null || wal < kept.endWal);

/** Whether a missing WAL file gave way: it is no fault of the archive. */
export const gaveWay = (wal: string, kept: KeptPoints | null): boolean =>
  kept?.endWal != null && kept.againWal !== null && wal >= kept.endWal && wal < kept.againWal;

/** The archive and the snapshots are those of the service, whichever member has its data. */
const fileOf = ({ snapshots }: Pick<InstancePaths, 'snapshots'>): string =>
  join(dirname(snapshots), 'kept-points.json');

/** The points that stay, or stayed last; null: WAL has never given way. */
export async function readKeptPoints(
  paths: Pick<InstancePaths, 'snapshots'>,
): Promise<KeptPoints | null> {
  const text = await readOrNull(fileOf(paths));
  if (text === null) return null;
  const parsed: unknown = JSON.parse(text);
  return Check(KEPT, parsed) ? parsed : null;
}

/** The points that stay at this moment; null: no others than the window asks for. */
export async function keptPointsNow(
  paths: Pick<InstancePaths, 'snapshots'>,
  snapshots: readonly Pick<Snapshot, 'id'>[],
): Promise<KeptPoints | null> {
  const kept = await readKeptPoints(paths);
  if (kept === null || kept.untilMs <= Date.now()) return null;
  // A restore in place begins with snapshots of its own.
  return snapshots.some(({ id }) => id === kept.snapshot) ? kept : null;
}

export async function writeKeptPoints(
  paths: Pick<InstancePaths, 'snapshots'>,
  kept: KeptPoints,
): Promise<void> {
  await writeDurably(fileOf(paths), JSON.stringify(kept));
}
