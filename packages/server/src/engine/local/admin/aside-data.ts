/**
 * Data that a recovery or an upgrade has set aside: it takes disk space, and may be the last copy.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { noneOf } from '../../../lib/processes.ts';
import type { Layout } from '../host/layout.ts';
import { findSites } from './sites.ts';

/**
 * Lists the data that services of an installation have aside. Changes nothing.
 *
 * @returns a sentence for each
 */
export async function listAside(home: string): Promise<string[]> {
  const layouts = (await findSites(home)).flatMap(({ site }) => site?.layout ?? []);
  return (await Promise.all(layouts.map(asideIn))).flat();
}

async function asideIn(layout: Layout): Promise<string[]> {
  const sentences: string[] = [];
  for (const id of await readdir(layout.services)) {
    const directory = layout.aside(id);
    // A service may be removed meanwhile.
    for (const name of (await readdir(directory).catch(noneOf('ENOENT', 'ENOTDIR'))) ?? []) {
      const found = await stat(join(directory, name)).catch(noneOf('ENOENT'));
      if (found !== null)
        sentences.push(
          `set aside: ${join(directory, name)} has the data that a recovery or an upgrade of ` +
            `service ${id} replaced at ${found.mtime.toISOString()}; it is removed after ` +
            'HOWDAH_RESTORE_HOURS',
        );
    }
  }
  return sentences;
}
