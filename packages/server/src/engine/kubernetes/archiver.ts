/**
 * Watches how far the WAL of each service is archived in the object store of the region, and keeps
 * the objects of the plugin as the region has them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import pLimit from 'p-limit';
import { EngineUnavailable } from '../engine.ts';
import { KINDS } from './api/kinds.ts';
import { createArchiveSizes } from './archive-sizes.ts';
import { ARCHIVED, objectStoreName } from './manifests/object-store.ts';
import { openSession, type Reach } from './networks.ts';
import type { ObjectStore } from '../object-store.ts';
import { earliestOf, writeArchived } from './service/archive-state.ts';
import {
  archiveProblem,
  isArchived,
  needsMarker,
  type Marker,
  type Seen,
} from './service/archive.ts';
import { writeObjectStore, type StoreReach } from './service/object-store.ts';
import { placesIn } from './service/objects.ts';

const EVERY_MS = 20_000;
/** A session that ends in order leaves no line in the server log of its owner. */
const END_MS = 1000;
/** Sessions at a time, each with another service. */
const AT_A_TIME = 8;

/** The parts of a region that archiving needs. */
export type ArchiveReach = Reach & StoreReach;

export type Archiver = ReturnType<typeof createArchiver>;

/** @param failed called with the error of background work, which is tried again */
export function createArchiver(region: ArchiveReach, failed: (error: unknown) => void) {
  const markers = new Map<string, Marker>();
  const problems = new Map<string, string>();
  const written = new Map<string, string>();
  const limit = pLimit(AT_A_TIME);
  const sizes = createArchiveSizes(region, failed);
  const lookAt = async (id: string): Promise<void> => {
    const store = region.objectStore();
    const cluster = region.cache.cluster(id);
    if (store === null || cluster?.projectId == null || cluster.desired?.archives !== true) return;
    const { desired, awaited, provisioned, leaving } = cluster;
    // Its ObjectStore may be removed by now.
    if (leaving) return;
    // They are written again if this fails.
    const wanted = JSON.stringify([store, region.retentionDays]);
    if (written.get(id) !== wanted) {
      await writeObjectStore(region, id, cluster.projectId);
      written.set(id, wanted);
    }
    // Before its pod has the plugin, CloudNativePG takes each file as archived.
    if (!desired.running || awaited !== null || !provisioned) return;
    const found = await look(region, id, markers.get(`${store.id} ${id}`) ?? null);
    const problem = archiveProblem(found.seen);
    if (problem === null) problems.delete(id);
    else {
      problems.set(id, problem);
      // A purge beside a create may have removed the key that both need.
      written.delete(id);
    }
    const { marker } = found;
    if (marker.isArchived) await noteArchived(region, cluster.projectId, id, store, marker);
    markers.set(`${store.id} ${id}`, marker);
  };
  const lookAtAll = async (): Promise<void> => {
    await limit.map(region.cache.ids(), (id) =>
      lookAt(id).catch((error: unknown) => {
        // A server that is down archives nothing, and its service says so.
        if (!(error instanceof EngineUnavailable)) failed(error);
      }),
    );
  };
  let isLooking = false;
  const timer = setInterval(() => {
    if (isLooking || region.objectStore() === null) return;
    isLooking = true;
    void lookAtAll().finally(() => {
      isLooking = false;
    });
  }, EVERY_MS);
  return {
    /** Why its WAL is not archived; null: it is, or that is not known. */
    problem: (id: string): string | null => problems.get(id) ?? null,
    bytes: sizes.bytes,
    close: (): void => {
      clearInterval(timer);
      sizes.close();
    },
  };
}

/** In SQL of any search path: the database may be that of a user. */
const SEEN = `
  select pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()) as file,
    pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text as "nextXid",
    last_archived_wal as "archivedFile",
    pg_catalog.date_part('epoch', last_archived_time) as archived,
    pg_catalog.date_part('epoch', last_failed_time) as failed,
    pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))::pg_catalog.float8
      as "fileBytes"
  from pg_catalog.pg_stat_archiver`;
const MARK = `
  select pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) as now,
    pg_catalog.pg_logical_emit_message(true, 'howdah', '')`;

const NULLABLE = Type.Union([Type.Number(), Type.Null()]);
const SEEN_ROW = Type.Object({
  file: Type.String(),
  nextXid: Type.String({ pattern: '^[0-9]+$' }),
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
  const { file, nextXid, archivedFile, archived, failed, fileBytes } = row;
  return {
    file,
    nextXid: BigInt(nextXid),
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
  if (last !== null && !needsMarker(last, seen, Date.now(), earliestMs))
    return { seen, marker: { ...last, isArchived: last.isArchived || isArchived(last, seen) } };
  const atMs = await writeMarker(client);
  const after = await readSeen(client);
  const { file, nextXid } = after;
  return { seen: after, marker: { atMs, file, nextXid, isArchived: false } };
}

type Found = Readonly<{ seen: Seen; marker: Marker }>;

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
  { kube, cache }: ArchiveReach,
  projectId: string,
  id: string,
  store: ObjectStore,
  { atMs }: Marker,
): Promise<void> {
  const known = cache.archive(id)?.archived;
  if (known?.store === store.id && known.toMs >= atMs) return;
  const value = writeArchived({ store: store.id, toMs: atMs });
  const place = placesIn(projectId)(KINDS.objectStore, objectStoreName(id));
  await kube.merge(place, { metadata: { annotations: { [ARCHIVED]: value } } });
}
