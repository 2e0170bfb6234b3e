/**
 * What of a service is in the object store of its region. The moment up to which all is archived is
 * in an annotation of its ObjectStore; the base backups are in the status of that, which the plugin
 * writes from what it finds in the bucket. All of it is input.
 */
import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import { ARCHIVED, objectStoreName } from '../manifests/object-store.ts';
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

/** The value of the annotation. */
const ARCHIVED_VALUE = Type.Object({ store: Type.String(), toMs: Type.Number() });

export type ArchiveState = Readonly<{
  /** The bucket that has all up to a moment, by its id; null: nothing is known to be archived. */
  archived: Readonly<{ store: string; toMs: number }> | null;
  /** The end of the oldest base backup; null: there is none. */
  firstMs: number | null;
  /** When the last base backup was taken; null: there is none. */
  lastBackupMs: number | null;
}>;

export function archiveState(id: string, { metadata, status }: ArchiveObject): ArchiveState {
  const window = status?.serverRecoveryWindow?.[objectStoreName(id)];
  return {
    archived: readArchived(metadata.annotations?.[ARCHIVED]),
    firstMs: timeOf(window?.firstRecoverabilityPoint),
    lastBackupMs: timeOf(window?.lastSuccessfulBackupTime),
  };
}

export const writeArchived = (archived: Static<typeof ARCHIVED_VALUE>): string =>
  JSON.stringify(archived);

function readArchived(text: string | undefined): Static<typeof ARCHIVED_VALUE> | null {
  if (text === undefined) return null;
  try {
    const parsed: unknown = JSON.parse(text);
    return Value.Check(ARCHIVED_VALUE, parsed) ? parsed : null;
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
