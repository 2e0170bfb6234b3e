/** The programs of servers that tests start. */
import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

/**
 * The path of a program.
 *
 * @param remedy the command that adds it
 * @throws Error where it is missing: no test may be left out for that
 */
export async function programOf(name: string, remedy: string): Promise<string> {
  // Debian has servers where users need no programs from.
  for (const directory of [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin']) {
    const path = join(directory, name);
    try {
      await access(path, constants.X_OK);
      return path;
    } catch {
      continue; // the next directory may have it
    }
  }
  throw new Error(`${name} is missing: ${remedy}`);
}
