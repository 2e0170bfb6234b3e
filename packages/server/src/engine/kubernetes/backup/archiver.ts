/**
 * Watches how far the WAL of each service is archived in the object store of the region, and keeps
 * the objects of the plugin as the region has them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import pLimit from 'p-limit';
import type { Rounds } from '../../../lib/rounds.ts';
import { EngineUnavailable } from '../../engine.ts';
import { KINDS } from '../api/kinds.ts';
import { archiveRecordManifest, archiveRecordName } from './manifests.ts';
import { openSession, type Reach } from '../network/guard.ts';
import {
  earliestOf,
  recordOf,
  archiveProblem,
  isArchived,
  needsMarker,
  type Marker,
  type Progress,
  type Seen,
} from './archive-state.ts';
import { writeObjectStore, type StoreReach } from './object-store.ts';
import { placesIn } from '../cluster/objects.ts';
import type { ClusterState } from '../cluster/state.ts';
import { STEPS } from '../cluster/steps.ts';
import { folderOf } from '../../object-store.ts';
import { clusterName } from '../names.ts';
import { sizeOf } from './s3.ts';
import type { Region } from '../region/region.ts';

/** A session that ends in order leaves no line in the server log of its owner. */
const END_MS = 1000;
/** Sessions at a time, each with another service. */
const AT_A_TIME = 8;

/** The parts of a region that archiving needs. */
type ArchiveReach = Reach & StoreReach;

export type Archiver = ReturnType<typeof createArchiver>;

/** The state of the archive of a service in one place. */
type Known = Progress & Readonly<{ place: string; marker: Marker | null }>;

/** @param failed called with the error of background work, which is tried again */
export function createArchiver(
  region: ArchiveReach,
  rounds: Rounds,
  failed: (error: unknown) => void,
) {
  const knowns = new Map<string, Known>();
  const written = new Map<string, string>();
  const limit = pLimit(AT_A_TIME);
  const sizes = createArchiveSizes(region, rounds, failed);
  const succeeds = async (work: () => Promise<void>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      failed(error);
      return false;
    }
  };
  /** @returns whether its objects are as the region has them */
  const write = async (id: string, projectId: string, wanted: string): Promise<boolean> => {
    if (written.get(id) === wanted) return true;
    const isWritten = await succeeds(() => writeObjectStore(region, id, projectId));
    if (isWritten) written.set(id, wanted);
    return isWritten;
  };
  const lookAt = async (id: string): Promise<void> => {
    const store = region.objectStore();
    const cluster = region.cache.cluster(id);
    if (store === null || cluster?.projectId == null || cluster.desired?.archives !== true) return;
    // The ObjectStore of a cluster that leaves may be removed by now.
    if (cluster.leaving) return;
    const { projectId } = cluster;
    const isWritten = await write(id, projectId, JSON.stringify([store, region.retentionDays]));
    if (!archivesNow(cluster)) {
      if (!cluster.desired.running) knowns.delete(id);
      return;
    }
    const found = knowns.get(id);
    // Until its objects name the place, all is archived in that of before.
    const isThere = isWritten || found?.place === store.id;
    const place = isThere ? store.id : '';
    const before = found?.place === place ? found : { ...NOTHING, place, toMs: Date.now() };
    const looked = await lookOrSay(region, id, before);
    const isKept =
      isThere &&
      (await succeeds(() => noteArchived(region, projectId, id, store.id, looked.marker)));
    const known = isKept ? looked : { ...looked, toMs: before.toMs, why: NOT_WRITTEN };
    knowns.set(id, known);
    // A purge beside a create may have removed the key that both need.
    if (archiveProblem(known, Date.now()) !== null) written.delete(id);
  };
  const lookAtAll = async (): Promise<void> => {
    if (region.objectStore() === null) return;
    const ids = region.cache.ids();
    await limit.map(ids, (id) => lookAt(id).catch(failed));
    for (const map of [knowns, written])
      for (const id of map.keys()) if (!ids.includes(id)) map.delete(id);
  };
  const round = rounds.every('archives', lookAtAll);
  round.startLater();
  return {
    /** Why its WAL is not archived; null: it is, or that is not known. */
    problem: (id: string): string | null => {
      const known = knowns.get(id);
      return known === undefined ? null : archiveProblem(known, Date.now());
    },
    bytes: sizes.bytes,
    close: (): void => {
      void round.close();
      void sizes.close();
    },
  };
}

const NOT_WRITTEN = 'its ObjectStore or the record of its archive cannot be written';
const NOTHING = { marker: null, seen: null, why: null } as const;

/**
 * Whether its pods have the plugin: before, CloudNativePG takes each file as archived. A start that
 * nobody asked for follows a failover, whose end may wait for the archive.
 */
const archivesNow = ({ desired, awaited, provisioned }: ClusterState): boolean =>
  desired?.running === true && (awaited === null || awaited === STEPS.start) && provisioned;

/** Asks the server. Without an answer, the state of before stays, with the reason. */
async function lookOrSay(region: ArchiveReach, id: string, before: Known): Promise<Known> {
  const { marker: last } = before;
  try {
    const { seen, marker, isNew } = await look(region, id, last);
    const { toMs } = before;
    const known = { ...before, seen, marker, why: null };
    if (isNew || !marker.isArchived) return known;
    return {
      ...known,
      toMs: last?.isArchived === true ? Date.now() : Math.max(toMs, marker.madeMs),
    };
  } catch (error) {
    if (!(error instanceof EngineUnavailable)) throw error;
    return { ...before, why: error.message };
  }
}

/** In SQL of any search path: the database may be that of a user. */
const SEEN = `
  select pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) as file,
    pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) as now,
    pg_catalog.pg_current_snapshot()::pg_catalog.text as snapshot,
    last_archived_wal as "archivedFile",
    pg_catalog.date_part('epoch', last_archived_time) as archived,
    pg_catalog.date_part('epoch', last_failed_time) as failed,
    pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))::pg_catalog.float8
      as "fileBytes"
  from pg_catalog.pg_stat_archiver`;
/**
 * A transaction that has an id has a commit record. Functions that write more than that are
 * tsdbadmin's alone in the databases of a service.
 */
const MARK = `
  select pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) as now,
    pg_catalog.pg_current_xact_id()`;

const NULLABLE = Type.Union([Type.Number(), Type.Null()]);
const SEEN_ROW = Type.Object({
  file: Type.String(),
  now: Type.Number(),
  snapshot: Type.String(),
  archivedFile: Type.Union([Type.String(), Type.Null()]),
  archived: NULLABLE,
  failed: NULLABLE,
  fileBytes: Type.Number({ minimum: 1 }),
});
const MARK_ROW = Type.Object({ now: Type.Number() });

const msOf = (seconds: number | null): number | null => (seconds === null ? null : seconds * 1000);

async function readSeen(client: Client): Promise<Seen> {
  const { rows } = await client.query(SEEN);
  const [row] = rows;
  if (!Value.Check(SEEN_ROW, row)) throw new EngineUnavailable('it says nothing of its archive');
  const { file, now, snapshot, archivedFile, archived, failed, fileBytes } = row;
  return {
    file,
    nowMs: now * 1000,
    snapshot,
    archivedFile,
    archivedMs: msOf(archived),
    failedMs: msOf(failed),
    fileBytes,
  };
}

/** Commits a marker. @returns a moment not later than its commit; ms since the epoch */
async function writeMarker(client: Client): Promise<number> {
  await client.query('begin read write');
  // A missing standby must not hold it up, and a marker that is lost is just not archived.
  await client.query('set local synchronous_commit = local');
  const { rows } = await client.query(MARK);
  await client.query('commit');
  const [row] = rows;
  if (!Value.Check(MARK_ROW, row)) throw new EngineUnavailable('it has no clock');
  // A recovery to exactly the moment of a commit goes on after it.
  return Math.floor(row.now * 1000) - 1;
}

async function lookIn(
  client: Client,
  last: Marker | null,
  earliestMs: number | null,
): Promise<Found> {
  const seen = await readSeen(client);
  if (last !== null && !needsMarker(last, seen, earliestMs)) {
    const marker = { ...last, isArchived: last.isArchived || isArchived(last, seen) };
    return { seen, marker, isNew: false };
  }
  const madeMs = Date.now();
  const atMs = await writeMarker(client);
  const after = await readSeen(client);
  const { file, snapshot } = after;
  return { seen: after, marker: { atMs, madeMs, file, snapshot, isArchived: false }, isNew: true };
}

type Found = Readonly<{ seen: Seen; marker: Marker; isNew: boolean }>;

/** Reads with a session of the control plane, and writes a marker if one is needed. */
async function look(region: ArchiveReach, id: string, last: Marker | null): Promise<Found> {
  const client = await openSession(region, id);
  try {
    const found = await lookIn(client, last, earliestOf(region.cache.archive(id)));
    await Promise.race([client.end(), sleep(END_MS)]);
    return found;
  } catch (error) {
    if (error instanceof EngineUnavailable) throw error;
    throw new EngineUnavailable('its archive cannot be looked at', { cause: error });
  } finally {
    client.connection.stream.destroy();
  }
}

async function noteArchived(
  { kube, cache, settings }: ArchiveReach,
  projectId: string,
  id: string,
  store: string,
  marker: Marker | null,
): Promise<void> {
  // The service may be purged by now.
  if (marker?.isArchived !== true || cache.cluster(id)?.leaving !== false) return;
  const known = cache.archive(id)?.archived;
  if (known?.store === store && known.toMs >= marker.atMs) return;
  const data = recordOf(store, marker.atMs);
  const place = placesIn(projectId)(KINDS.configMap, archiveRecordName(id));
  const manifest = archiveRecordManifest({ id, projectId, region: settings.code, data });
  cache.putRecord(await kube.apply(place, manifest));
}

// Measures what each service has in the object store of the region: nothing there limits it.

/** A folder of a million objects is a thousand requests. */
const MEASURE_EVERY_MS = 3_600_000;

type Measured = Readonly<{ store: string; bytes: number; atMs: number; backupMs: number | null }>;

/** @param failed called with the error of background work, which is tried again */
function createArchiveSizes(
  { cache, objectStore }: Pick<Region, 'cache' | 'objectStore'>,
  rounds: Rounds,
  failed: (error: unknown) => void,
) {
  const measured = new Map<string, Measured>();
  const measure = async (id: string): Promise<void> => {
    const store = objectStore();
    const backupMs = cache.archive(id)?.lastBackupMs ?? null;
    if (store === null || cache.archive(id) === null) return;
    const last = measured.get(id);
    const atMs = Date.now();
    const isCurrent = last?.store === store.id && last.backupMs === backupMs;
    if (isCurrent && atMs - last.atMs < MEASURE_EVERY_MS) return;
    const bytes = await sizeOf(store, `${folderOf(store)}/${clusterName(id)}`);
    measured.set(id, { store: store.id, bytes, atMs, backupMs });
  };
  const measureAll = async (): Promise<void> => {
    // One after the other: the bucket has other work.
    for (const id of cache.ids())
      await measure(id).catch((error: unknown) => {
        // Services and the doctor say that it is away.
        if (!(error instanceof EngineUnavailable)) failed(error);
      });
    const ids = new Set(cache.ids());
    for (const id of measured.keys()) if (!ids.has(id)) measured.delete(id);
  };
  const round = rounds.every('archiveSizes', measureAll);
  round.startLater();
  return {
    /** After a base backup, and every hour; null: it was not measured yet. */
    bytes: (id: string): number | null => measured.get(id)?.bytes ?? null,
    close: round.close,
  };
}
