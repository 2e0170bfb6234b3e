/** For `howdah doctor`: servers whose PostgreSQL was replaced or removed since they started. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Finding } from '@howdah/contract';
import type { Installation } from '../postgres/installations.ts';
import { runningPostmasters } from '../postgres/server.ts';

/**
 * Compares the programs of processes with the installed ones. It runs none of them: the process of
 * a tenant's user could name any program.
 *
 * @param roots the data directories of this installation
 */
export async function replacedBinaries(
  usable: readonly Installation[],
  roots: readonly string[],
): Promise<Finding[]> {
  const current = new Set(
    await Promise.all(usable.map(({ bin }) => fileOf(join(bin, 'postgres')))),
  );
  const replaced = new Set<string>();
  for (const { data, pid } of await runningPostmasters()) {
    const root = roots.find((one) => data.startsWith(`${one}/`));
    if (root === undefined) continue;
    const file = await fileOf(`/proc/${pid}/exe`);
    if (file !== null && !current.has(file)) replaced.add(nameOf(data.slice(root.length + 1)));
  }
  if (replaced.size === 0) return [];
  return [
    {
      what: 'running PostgreSQL',
      state: 'note',
      found: `the PostgreSQL of ${[...replaced].join(', ')} was replaced or removed since they started`,
      remedy:
        'howdah service restart NAME, or a maintenance window (HOWDAH_MAINTENANCE_WINDOW); the ' +
        'metadata database: howdah down --databases, then howdah up',
    },
  ];
}

/** Device and number of a file, through links; null: it is gone, or of another user's process. */
async function fileOf(path: string): Promise<string | null> {
  return stat(path).then(
    ({ dev, ino }) => `${dev} ${ino}`,
    () => null,
  );
}

/** @param data below a data directory: services/ID/data, services/ID/members/1/data, store/data */
function nameOf(data: string): string {
  const [kind, id] = data.split('/');
  return kind === 'services' ? `service ${id}` : 'the metadata database';
}
