/**
 * The file that names the owner of a directory. A directory without it is not ours and never
 * touched.
 */
import { writeDurably } from '../../../lib/durable-files.ts';
import type { InstancePaths } from './layout.ts';
import { readNow, readOrNull } from '../../../lib/processes.ts';
import { rename, writeFile } from './root-files.ts';

/**
 * The content of an instance's marker. `madeIn`: the boot of the machine in which it was made (see
 * {@link currentBoot}). What a clone holds reaches the disk while its server starts for the first
 * time, so that the data of one that is not provisioned may be incomplete in any later boot.
 */
export type Marker = {
  id: string;
  installation: string;
  provisioned: boolean;
  parent: string | null;
  /** ISO 8601: the moment of its parent that a fork was made with; null: it is not recorded. */
  began: string | null;
  madeIn: string;
  /**
   * The user of the operating system that owns it; null: the one of all services, as before they
   * had users of their own.
   */
  uid: number | null;
  /** The service whose user it shares; null: it has its own. */
  userOf: string | null;
  /** The restore that has made its data; null: none has. */
  recovery: string | null;
  /** The upgrade that has made its data; null: none has, or it was undone. */
  upgrade: string | null;
  /**
   * The upgrade whose data is being exchanged with the data of the service, and the PostgreSQL of
   * the data that comes in; null: none is.
   */
  exchange: { upgrade: string; installation: string } | null;
};

/** The boot of the machine, by Linux's name for it; elsewhere, where there is none, one for all. */
export async function currentBoot(): Promise<string> {
  return ((await readOrNull('/proc/sys/kernel/random/boot_id')) ?? 'unknown').trim();
}

/**
 * Writes durably that an instance is provisioned: one that is not is discarded in the next boot of
 * the machine.
 */
export async function writeMarker(paths: InstancePaths, marker: Marker): Promise<void> {
  if (marker.provisioned) return writeDurably(paths.marker, JSON.stringify(marker));
  await writeFile(`${paths.marker}.new`, JSON.stringify(marker), { flush: true });
  await rename(`${paths.marker}.new`, paths.marker);
}

/** The marker of an instance; null where there is none, or none of ours. */
export async function readMarker(paths: InstancePaths): Promise<Marker | null> {
  return markerOf(paths);
}

/** The same, synchronously. */
export function markerOf(paths: Pick<InstancePaths, 'marker'>): Marker | null {
  let marker: unknown;
  try {
    marker = JSON.parse(readNow(paths.marker) ?? 'null');
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
  if (
    typeof marker !== 'object' ||
    marker === null ||
    !('id' in marker) ||
    !('installation' in marker)
  )
    return null;
  // Older releases wrote `born`.
  const provisioned =
    'provisioned' in marker ? marker.provisioned : 'born' in marker ? marker.born : null;
  if (typeof provisioned !== 'boolean') return null;
  return {
    id: String(marker.id),
    installation: String(marker.installation),
    provisioned,
    madeIn: 'madeIn' in marker ? String(marker.madeIn) : '',
    parent: 'parent' in marker && typeof marker.parent === 'string' ? marker.parent : null,
    began: 'began' in marker && typeof marker.began === 'string' ? marker.began : null,
    uid: 'uid' in marker && typeof marker.uid === 'number' ? marker.uid : null,
    userOf: 'userOf' in marker && typeof marker.userOf === 'string' ? marker.userOf : null,
    recovery: 'recovery' in marker && typeof marker.recovery === 'string' ? marker.recovery : null,
    upgrade: 'upgrade' in marker && typeof marker.upgrade === 'string' ? marker.upgrade : null,
    exchange: 'exchange' in marker ? exchangeOf(marker.exchange) : null,
  };
}

function exchangeOf(found: unknown): Marker['exchange'] {
  return typeof found === 'object' &&
    found !== null &&
    'upgrade' in found &&
    'installation' in found
    ? { upgrade: String(found.upgrade), installation: String(found.installation) }
    : null;
}
