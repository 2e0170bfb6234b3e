/**
 * Control files by which PostgreSQL lets the owner of a database create an extension that its
 * authors do not call trusted. Servers see them in the place of those of the package
 * (docs/decisions/0087-trusted-extensions.md).
 */
import { randomBytes } from 'node:crypto';
import { dirname, join } from 'node:path';
import { TRUSTED } from '../../../domain/postgres/extension-rules.ts';
import { readOrNull } from '../../../lib/processes.ts';
import type { Layout } from '../host/layout.ts';
import { mkdir, rename, writeFile } from '../host/root-files.ts';
import type { SeenFile } from '../host/sandbox.ts';
import { parseControlFile } from './extension-files.ts';
import { shareDirectories } from './installations.ts';

/** The control file of a package. */
type Packaged = { readonly name: string; readonly path: string; readonly text: string };

/** Those that an installation has, and that their authors do not call trusted. */
export async function untrustedControls(bin: string): Promise<Packaged[]> {
  const places = TRUSTED.flatMap((name) =>
    shareDirectories(bin).map((share) => ({
      name,
      path: join(share, 'extension', `${name}.control`),
    })),
  );
  const found = await Promise.all(
    places.map(async (place) => ({ ...place, text: await readOrNull(place.path) })),
  );
  return found.flatMap(({ name, path, text }) => {
    if (typeof text !== 'string') return [];
    const { trusted } = parseControlFile({ name, directory: dirname(path), files: [] }, text);
    return trusted ? [] : [{ name, path, text }];
  });
}

/** The text of a control file that calls its extension trusted. */
export const asTrusted = (text: string): string => `${text.trimEnd()}\ntrusted = true\n`;

/**
 * Writes the control files for the servers of an installation, by those that its packages have at
 * this moment: a start of a server follows each update of a package.
 *
 * @returns which file a server sees at the place of which
 */
export async function trustedControls(
  bin: string,
  { modules }: Pick<Layout, 'modules'>,
): Promise<SeenFile[]> {
  const controls = await untrustedControls(bin);
  const directory = join(modules, 'controls', bin.slice(1).replaceAll('/', '-'));
  if (controls.length > 0) await mkdir(directory, { recursive: true, mode: 0o755 });
  return Promise.all(
    controls.map(async ({ name, path, text }) => {
      const source = join(directory, `${name}.control`);
      const wanted = asTrusted(text);
      if ((await readOrNull(source)) !== wanted) {
        const unfinished = `${source}.${randomBytes(4).toString('hex')}`;
        await writeFile(unfinished, wanted, { mode: 0o644 });
        await rename(unfinished, source);
      }
      return { source, target: path };
    }),
  );
}
