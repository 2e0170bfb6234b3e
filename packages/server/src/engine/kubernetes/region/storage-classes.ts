/** The classes by which a cluster makes volumes, and snapshots of them. */
import { messageOf } from '@howdah/contract/thrown';
import { Type, type Static } from 'typebox';
import type { Round, Rounds } from '../../../lib/rounds.ts';
import type { Kube } from '../api/client.ts';
import { KubeError } from '../api/errors.ts';
import { KINDS } from '../api/kinds.ts';

const METADATA = Type.Object({
  name: Type.String(),
  annotations: Type.Optional(Type.Record(Type.String(), Type.String())),
});
const STORAGE_CLASS = Type.Object({
  metadata: METADATA,
  provisioner: Type.String(),
  allowVolumeExpansion: Type.Optional(Type.Boolean()),
});
const SNAPSHOT_CLASS = Type.Object({
  metadata: METADATA,
  driver: Type.String(),
  deletionPolicy: Type.String(),
});

const DEFAULT_STORAGE = 'storageclass.kubernetes.io/is-default-class';
const DEFAULT_SNAPSHOT = 'snapshot.storage.kubernetes.io/is-default-class';

/** @param wanted null: the default class @returns null: there is none */
export async function findStorageClass(
  kube: Kube,
  wanted: string | null,
): Promise<Static<typeof STORAGE_CLASS> | null> {
  const all = { kind: KINDS.storageClass, namespace: null, name: null };
  const { items } = await kube.list(all, STORAGE_CLASS);
  const found = items.find(({ metadata: { name, annotations } }) =>
    wanted === null ? annotations?.[DEFAULT_STORAGE] === 'true' : name === wanted,
  );
  return found ?? null;
}

/** The class for snapshots of the volumes of a region, or why there is none. */
export type SnapshotClass = Readonly<{ name: string }> | Readonly<{ missing: string }>;

export const nameOf = (found: SnapshotClass): string | null =>
  'name' in found ? found.name : null;

/** @param storageClass of the volumes; null: the default class */
export async function findSnapshotClass(
  kube: Kube,
  storageClass: string | null,
): Promise<SnapshotClass> {
  const storage = await findStorageClass(kube, storageClass);
  if (storage === null) return { missing: 'there is no storage class' };
  const { provisioner } = storage;
  const classes = (await listSnapshotClasses(kube)).filter(({ driver }) => driver === provisioner);
  // With another policy, what is deleted here stays on the storage.
  const [first, ...others] = classes.filter(({ deletionPolicy }) => deletionPolicy === 'Delete');
  if (first === undefined)
    return {
      missing: `there is no VolumeSnapshotClass for the driver ${provisioner} that deletes`,
    };
  const preferred = [first, ...others].find(
    ({ metadata }) => metadata.annotations?.[DEFAULT_SNAPSHOT] === 'true',
  );
  return { name: (preferred ?? first).metadata.name };
}

async function listSnapshotClasses(kube: Kube): Promise<Static<typeof SNAPSHOT_CLASS>[]> {
  const all = { kind: KINDS.snapshotClass, namespace: null, name: null };
  try {
    return (await kube.list(all, SNAPSHOT_CLASS)).items;
  } catch (error) {
    // Without a snapshot controller there are no such resources.
    if (error instanceof KubeError && error.status === 404) return [];
    throw error;
  }
}

/** Keeps the snapshot class at hand: an answer to a user does not wait for the cluster. */
export function keepSnapshotClass(
  kube: Kube,
  storageClass: string | null,
  rounds: Rounds,
): Readonly<{ first: Promise<void>; current: () => SnapshotClass; close: Round['close'] }> {
  let current: SnapshotClass = { missing: 'the classes of the cluster are not listed yet' };
  const read = async (): Promise<void> => {
    current = await findSnapshotClass(kube, storageClass).catch((error: unknown) => ({
      missing: messageOf(error),
    }));
  };
  const round = rounds.every('snapshotClasses', read);
  round.startLater();
  return { first: round.run(), current: () => current, close: round.close };
}
