/**
 * What of a service is in the object store of its region. The base backups are in the status of its
 * ObjectStore, which the plugin writes from what it finds in the bucket. The moment up to which all
 * is archived is in a ConfigMap of ours. All of it is input.
 */
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import { objectStoreName } from '../manifests/object-store.ts';
import type { ObjectStore } from '../../object-store.ts';
import { METADATA } from './metadata.ts';

const TIME = Type.Optional(Type.Union([Type.String(), Type.Null()]));

export const ARCHIVE_OBJECT = Type.Object({
  metadata: METADATA,
  status: Type.Optional(
    Type.Object({
      serverRecoveryWindow: Type.Optional(
        Type.Record(
          Type.String(),
          Type.Object({ firstRecoverabilityPoint: TIME, lastSuccessfulBackupTime: TIME }),
        ),
      ),
    }),
  ),
});
export type ArchiveObject = Static<typeof ARCHIVE_OBJECT>;

export const ARCHIVE_RECORD = Type.Object({
  metadata: METADATA,
  data: Type.Optional(Type.Record(Type.String(), Type.String())),
});
export type ArchiveRecord = Static<typeof ARCHIVE_RECORD>;

export type ArchiveState = Readonly<{
  /** The bucket that has all up to a moment, by its id; null: nothing is known to be archived. */
  archived: Readonly<{ store: string; toMs: number }> | null;
  /** The end of the oldest base backup; null: there is none. */
  firstMs: number | null;
  /** When the last base backup was taken; null: there is none. */
  lastBackupMs: number | null;
}>;

/** @param record undefined: nothing is recorded yet */
export function archiveState(
  id: string,
  { metadata, status }: ArchiveObject,
  record: ArchiveRecord | undefined,
): ArchiveState {
  const window = status?.serverRecoveryWindow?.[objectStoreName(id)];
  return {
    archived: readArchived(record?.data) ?? readAnnotation(metadata.annotations?.[BEFORE]),
    firstMs: timeOf(window?.firstRecoverabilityPoint),
    lastBackupMs: timeOf(window?.lastSuccessfulBackupTime),
  };
}

/** The data of the ConfigMap. */
export const recordOf = (store: string, toMs: number): Readonly<Record<string, string>> => ({
  store,
  to: new Date(toMs).toISOString(),
});

function readArchived(data: ArchiveRecord['data']): ArchiveState['archived'] {
  const [store, toMs] = [data?.['store'], timeOf(data?.['to'])];
  return store === undefined || toMs === null ? null : { store, toMs };
}

/** Earlier releases wrote an annotation of the ObjectStore. It stays true. */
const BEFORE = 'howdah.io/archived';
const ANNOTATION = Type.Object({ store: Type.String(), toMs: Type.Number() });

function readAnnotation(text: string | undefined): ArchiveState['archived'] {
  try {
    const parsed: unknown = JSON.parse(text ?? 'null');
    return Value.Check(ANNOTATION, parsed) ? parsed : null;
  } catch {
    return null;
  }
}

function timeOf(text: string | null | undefined): number | null {
  const ms = Date.parse(text ?? '');
  return Number.isNaN(ms) ? null : ms;
}

/** Kubernetes cuts times off to seconds. */
const SECOND_MS = 1000;

/** The first moment that a base backup reaches; null: there is none. */
export function earliestOf(state: ArchiveState | null): number | null {
  const firstMs = state?.firstMs ?? null;
  return firstMs === null ? null : firstMs + SECOND_MS;
}

/**
 * The moments that a fork can be made of; null: none yet. It never goes by the condition
 * `ContinuousArchiving`, which is true without an archive (docs/cloudnativepg.md, fact 5).
 */
export function windowOf(
  state: ArchiveState | null,
  store: ObjectStore | null,
): Readonly<{ earliestMs: number; latestMs: number }> | null {
  if (state === null || store === null) return null;
  const { archived, firstMs } = state;
  const earliestMs = earliestOf(state);
  if (archived?.store !== store.id || firstMs === null || earliestMs === null) return null;
  // The status is still about the place of before.
  if (firstMs < store.sinceMs) return null;
  const latestMs = archived.toMs;
  return latestMs < earliestMs ? null : { earliestMs, latestMs };
}

/**
 * The newest moment that a recovery brings back for certain; null: none. A base backup is in the
 * bucket with the WAL of its time, also when its Cluster was deleted before more was recorded.
 */
export function newestOf(state: ArchiveState | null, store: ObjectStore | null): number | null {
  const window = windowOf(state, store);
  if (window !== null) return window.latestMs;
  const [firstMs, lastMs] = [state?.firstMs ?? null, state?.lastBackupMs ?? null];
  return store === null || firstMs === null || firstMs < store.sinceMs ? null : lastMs;
}
