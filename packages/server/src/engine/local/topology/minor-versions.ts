/** Servers whose PostgreSQL was replaced or removed on the machine while they run. */
import { join } from 'node:path';
import { stat } from 'node:fs/promises';
import type { Warning } from '@howdah/contract';
import { isErrno } from '../../../lib/processes.ts';
import { memberKey } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { readMarker } from '../host/marker.ts';
import {
  installationOf,
  majorOf,
  missingFor,
  presentOf,
  versionOf,
} from '../postgres/installations.ts';
import type { Monitored } from '../../postgres/sessions/monitor.ts';
import { findServer } from '../postgres/server.ts';
import { instanceNumbers } from './instances.ts';

/** Known versions: a binary changes its own with its file, a server with its process. */
export type MinorVersions = Readonly<{
  machine: Machine;
  monitor: Monitored;
  /** By the directory of the binary: its file, and the version that it reports. */
  installed: Map<string, { file: string; version: string }>;
  /** By the key of the server: its process, and the version that it reports. */
  running: Map<string, { pid: number; version: string }>;
}>;

export function createMinorVersions(machine: Machine, monitor: Monitored): MinorVersions {
  return { machine, monitor, installed: new Map(), running: new Map() };
}

/**
 * The warnings of a service whose servers run another version than the installed one.
 *
 * @param sets its read replica sets, which are restarted with it
 *
 * @returns a warning if a restart would change the version of a server, or could not be made
 */
export async function versionWarnings(
  versions: MinorVersions,
  id: string,
  sets: readonly string[],
): Promise<Warning[]> {
  const { layout, installations } = versions.machine;
  const marker = await readMarker(layout.service(id));
  if (marker === null) return [];
  const major = majorOf(marker);
  const present = presentOf(installations.usable);
  const installation = installationOf(present, marker, { addons: [], major });
  const next = installation === null ? null : await installedVersion(versions, installation.bin);
  if (next === null) {
    return [
      {
        code: 'NOT_INSTALLED',
        message:
          'the PostgreSQL that it runs was removed: its servers cannot be started again once ' +
          `they stop. ${missingFor(present, [], major)}`,
      },
    ];
  }
  const older = new Set<string>();
  for (const one of [id, ...sets]) {
    for (const n of await instanceNumbers(versions.machine, one)) {
      const version = await runningVersion(versions, one, n);
      if (version !== null && version !== next) older.add(version);
    }
  }
  if (older.size === 0) return [];
  return [
    {
      code: 'MINOR_VERSION',
      message:
        `PostgreSQL ${next} is installed, ` +
        `and it runs ${[...older].join(' and ')}: howdah service ` +
        `restart ${id} applies the update, and so does a maintenance window ` +
        '(HOWDAH_MAINTENANCE_WINDOW)',
    },
  ];
}

/** @returns null: it was removed */
async function installedVersion({ installed }: MinorVersions, bin: string): Promise<string | null> {
  const path = join(bin, 'postgres');
  try {
    const { ino, mtimeMs, size } = await stat(path);
    const file = `${ino} ${mtimeMs} ${size}`;
    const known = installed.get(bin);
    if (known?.file === file) return known.version;
    const version = await versionOf(path);
    if (version !== null) installed.set(bin, { file, version });
    return version;
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return null;
    throw error;
  }
}

/** @returns null: it does not run, or cannot be asked now */
async function runningVersion(
  { machine, monitor, running }: MinorVersions,
  id: string,
  n: number,
): Promise<string | null> {
  const key = memberKey(id, n);
  const server = await findServer(machine.layout.member(id, n));
  if (server === null || !monitor.isConnected(key)) return null;
  const { pid } = server.postmaster;
  const known = running.get(key);
  if (known?.pid === pid) return known.version;
  const [row] = await monitor
    .query<{ server_version: string }>(key, 'show server_version')
    .catch(() => []);
  const version = row?.server_version.split(' ')[0] ?? null;
  if (version !== null) running.set(key, { pid, version });
  return version;
}
