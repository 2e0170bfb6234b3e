/**
 * The snapshots of a service: what is recorded of each, in which order they are, and which of them
 * a point in time is restored from.
 *
 * A snapshot is a clone of the data directory that starts by itself. The initial snapshot costs
 * nothing: a new service is its template with another system identifier, which is all that is
 * recorded.
 */
import { join } from 'node:path';
import type { Verification } from '@howdah/contract';
import { writeDurably } from '../../../lib/durable-files.ts';
import type { InstancePaths } from '../host/layout.ts';
import { readOrNull } from '../../../lib/processes.ts';
import { mkdir, writeFile } from '../host/root-files.ts';
import { listEntries } from '../../../lib/untrusted-files.ts';
import { parseLsn } from '../../postgres/data/wal.ts';
import { isWalFile, entriesOf } from '../../postgres/data/wal-files.ts';

/** The facts of a snapshot, in a file beside its data. */
export type Snapshot = {
  id: string;
  kind: 'initial' | 'scheduled';
  /**
   * The data is of this moment, in ms since the epoch; it can be rolled forward from here.
   */
  takenMs: number;
  /** The first WAL file that rolling forward needs. */
  firstWal: string;
  /** How far the WAL had been written; the same as now: nothing has been written since. */
  walPosition: string;
  storageBytes: number;
  /** For the initial snapshot: the template, and the system identifier of the service. */
  template: string | null;
  systemIdentifier: string | null;
};

/** A snapshot that is there. */
export type KeptSnapshot = Snapshot & {
  /** The result of its last verification; null: it was never verified. */
  verification: Verification | null;
};

/**
 * Records the initial snapshot of a service. It is flushed before the service is READY, with all of
 * the clone.
 *
 * @param unfinished the instance being made
 */
export async function recordInitialSnapshot(
  unfinished: InstancePaths,
  template: string,
  systemIdentifier: bigint,
): Promise<void> {
  const wal = (await listEntries(join(unfinished.data, 'pg_wal'))).filter(isWalFile).toSorted();
  const takenMs = Date.now();
  const id = snapshotId(takenMs);
  await mkdir(join(unfinished.snapshots, id), { mode: 0o700 });
  await writeSnapshot(unfinished, {
    id,
    kind: 'initial',
    takenMs,
    firstWal: wal[0] ?? '',
    walPosition: '',
    storageBytes: 0,
    template,
    systemIdentifier: String(systemIdentifier),
  });
}

/**
 * The snapshot from which a point in time is restored: the newest that is not later. An older one
 * reaches no further, see {@link reachable}. Forks and pruning use this choice.
 *
 * @param snapshots newest first
 * @returns null: there is none
 */
export function chooseSnapshot<T extends Pick<Snapshot, 'takenMs'>>(
  snapshots: readonly T[],
  targetMs: number,
): T | null {
  return snapshots.find(({ takenMs }) => takenMs <= targetMs) ?? null;
}

/** The last verification of any of these snapshots; null: none was verified. */
export function lastVerification(snapshots: readonly KeptSnapshot[]): Verification | null {
  const made = snapshots.flatMap(({ verification }) =>
    verification === null ? [] : [verification],
  );
  return made.toSorted((a, b) => Date.parse(b.at) - Date.parse(a.at))[0] ?? null;
}

/**
 * Newest first, by WAL: a snapshot that was taken while the clock was ahead is dated later than
 * those after it. The initial snapshot, which has no position, is the oldest.
 */
export async function listSnapshots(paths: InstancePaths): Promise<KeptSnapshot[]> {
  const entries = (await entriesOf(paths.snapshots)).filter((entry) => !entry.endsWith('.new'));
  const read = await Promise.all(entries.map((entry) => readSnapshot(paths, entry)));
  const position = ({ walPosition }: KeptSnapshot): bigint =>
    walPosition === '' ? -1n : parseLsn(walPosition);
  return read
    .filter((snapshot) => snapshot !== null)
    .toSorted((a, b) => Number(position(b) - position(a)) || b.takenMs - a.takenMs);
}

async function readSnapshot(paths: InstancePaths, id: string): Promise<KeptSnapshot | null> {
  const text = await readOrNull(join(paths.snapshots, id, 'snapshot.json'));
  if (text === null) return null;
  const parsed: unknown = JSON.parse(text);
  if (typeof parsed !== 'object' || parsed === null) return null;
  const property = (name: string): unknown => Reflect.get(parsed, name);
  const textOrNull = (name: string): string | null =>
    typeof property(name) === 'string' ? String(property(name)) : null;
  return {
    id,
    // Older releases wrote another word for the initial one.
    kind: property('kind') === 'scheduled' ? 'scheduled' : 'initial',
    takenMs: Number(property('takenMs')),
    firstWal: textOrNull('firstWal') ?? '',
    walPosition: textOrNull('walPosition') ?? '',
    storageBytes: Number(property('storageBytes')),
    template: textOrNull('template'),
    systemIdentifier: textOrNull('systemIdentifier'),
    verification: await readVerification(paths, id),
  };
}

async function readVerification(paths: InstancePaths, id: string): Promise<Verification | null> {
  const text = await readOrNull(join(paths.snapshots, id, VERIFICATION_FILE));
  return text === null ? null : parseVerification(JSON.parse(text));
}

function parseVerification(parsed: unknown): Verification | null {
  const property = (of: unknown, name: string): unknown =>
    typeof of === 'object' && of !== null ? Reflect.get(of, name) : undefined;
  const [at, checks] = [property(parsed, 'at'), property(parsed, 'checks')];
  if (typeof at !== 'string' || !Array.isArray(checks)) return null;
  const [seconds, point, problem] = [
    property(parsed, 'recovery_seconds'),
    property(parsed, 'recovery_point'),
    property(parsed, 'problem'),
  ];
  return {
    at,
    succeeded: property(parsed, 'succeeded') === true,
    recovery_seconds: typeof seconds === 'number' ? seconds : null,
    recovery_point: typeof point === 'string' ? point : null,
    checks: checks.map((check: unknown) => ({
      name: String(property(check, 'name')),
      succeeded: property(check, 'succeeded') === true,
      detail: String(property(check, 'detail')),
    })),
    ...(typeof problem === 'string' ? { problem } : {}),
  };
}

/** Notes beside a snapshot what became of restoring it. */
export async function writeVerification(
  paths: InstancePaths,
  id: string,
  verification: Verification,
): Promise<void> {
  await writeDurably(join(paths.snapshots, id, VERIFICATION_FILE), JSON.stringify(verification));
}

const VERIFICATION_FILE = 'verification.json';

async function writeSnapshot(paths: InstancePaths, snapshot: Snapshot): Promise<void> {
  await writeFile(join(paths.snapshots, snapshot.id, 'snapshot.json'), JSON.stringify(snapshot));
}

export function snapshotId(ms: number): string {
  return new Date(ms).toISOString().replaceAll(/[-:.]/g, '');
}
