/** Observes the copy of a service of another region. */
import { existsSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { readOrNull } from '../../../lib/processes.ts';
import type { Followed } from '../host/followed-server.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { readMarker, type Marker } from '../host/marker.ts';
import { type Owner, ownerOf } from '../host/users.ts';
import { isFile } from '../../../lib/untrusted-files.ts';
import {
  installationOf,
  presentOf,
  whyNotStartable,
  type Installation,
} from '../postgres/installations.ts';
import { findServer, type Server } from '../postgres/server.ts';
import { sizeLabel } from '../../postgres/size-label.ts';
import type { Topology } from '../topology/context.ts';
import { isOfOtherBoot, observeBackup } from './base-backup.ts';
import type { CopySeen, BackupSeen } from '../../postgres/decisions/decide-copy.ts';
import { copyFiles, currentlyFollowed, type CopySpec, readBegun } from './copy-directory.ts';

/** A copy as it is found. */
export type FoundCopy = Readonly<{
  paths: InstancePaths;
  marker: Marker | null;
  owner: Owner | null;
  installation: Installation | null;
  followed: Followed | null;
  server: Server | null;
}>;

export async function observeCopy(
  { machine, renewEgress }: Pick<Topology, 'machine' | 'renewEgress'>,
  spec: CopySpec,
): Promise<{ found: FoundCopy; seen: CopySeen }> {
  const paths = machine.layout.copy(spec.id);
  const [marker, server] = await Promise.all([readMarker(paths), findServer(paths)]);
  const present = presentOf(machine.installations.usable);
  const installation = installationOf(present, marker, spec);
  const owner = ownerOf(machine, paths);
  const isService = spec.move?.as !== 'copy';
  const followed = isService ? null : await currentlyFollowed(paths, spec, renewEgress);
  const found = { paths, marker, owner, installation, followed, server };
  const backup = await backupOf(found);
  const seen: CopySeen = {
    isService,
    isTaken: existsSync(machine.layout.service(spec.id).root),
    directory: directoryOf(paths, marker, spec.id),
    becoming: marker?.provisioned === true ? 'done' : readBegun(paths) === null ? 'none' : 'begun',
    data: dataOf(paths),
    backup,
    excess: await excessOf(machine, spec, backup),
    mayConnect: followed !== null,
    server: server === null ? null : { isCurrent: await isCurrent(spec, found, server) },
    notStartable: whyNotStartable(present, marker, spec),
  };
  return { found, seen };
}

const directoryOf = (
  { root }: InstancePaths,
  marker: Marker | null,
  id: string,
): CopySeen['directory'] => (marker?.id === id ? 'ours' : existsSync(root) ? 'foreign' : 'absent');

function dataOf({ data }: InstancePaths): CopySeen['data'] {
  if (!existsSync(data)) return 'absent';
  return isFile(join(data, 'standby.signal')) ? 'standby' : 'other';
}

/** A base backup from before the machine went down may lack files, whatever it printed. */
async function backupOf({ paths, marker }: FoundCopy): Promise<BackupSeen> {
  if (marker === null) return { kind: 'none' };
  const seen = await observeBackup(paths);
  const isLost = seen.kind !== 'running' && (await isOfOtherBoot(marker.madeIn));
  return isLost ? { kind: 'none' } : seen;
}

const GB = 1e9;

/** Why a base backup must not go on: the size of its source is what the source says. */
async function excessOf(
  machine: Machine,
  { storageGb }: CopySpec,
  backup: BackupSeen,
): Promise<string | null> {
  if (backup.kind !== 'running') return null;
  const { doneBytes, totalBytes } = backup;
  if (Math.max(doneBytes, totalBytes) > storageGb * GB)
    return `the data takes more than its storage of ${storageGb} GB: give it more storage_gb`;
  const { bavail, bsize } = await statfs(machine.layout.copies);
  const [freeBytes, leftBytes] = [bavail * bsize, Math.max(0, totalBytes - doneBytes)];
  const mb = (bytes: number): string => `${Math.ceil(bytes / 1e6)} MB`;
  return freeBytes < leftBytes
    ? `no space left on the disk of the services: ${mb(freeBytes)} free, ` +
        `${mb(leftBytes)} needed; delete services or make space on it`
    : null;
}

async function isCurrent(
  spec: CopySpec,
  { paths, owner, installation, followed }: FoundCopy,
  server: Server,
): Promise<boolean> {
  if (installation === null || followed === null) return true;
  if (server.size !== sizeLabel(spec.size, spec.preload)) return false;
  const text = copyFiles(spec, paths, { installation, owner }, followed)['postgresql.conf'] ?? '';
  return (await readOrNull(join(paths.config, 'postgresql.conf'))) === text;
}
