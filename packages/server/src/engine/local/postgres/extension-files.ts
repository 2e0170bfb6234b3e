/** The extensions of a PostgreSQL installation, by their files. */
import { join, dirname } from 'node:path';
import { randomBytes } from 'node:crypto';
import { EXTENSION_NAME_PATTERN } from '@howdah/contract';
import { readFile, mkdir, rename, writeFile } from '../host/root-files.ts';
import {
  entriesOf,
  libraryDirectories,
  shareDirectories,
  type Installation,
} from './installations.ts';
import { parseControlFile, type ControlFile } from '../../postgres/contents/control-file.ts';
import { OUTPUT_PLUGINS, TRUSTED } from '../../../domain/postgres/extension-rules.ts';
import { readOrNull } from '../../../lib/processes.ts';
import type { Layout } from '../host/layout.ts';
import type { SeenFile } from '../host/sandbox.ts';

type Place = Pick<Installation, 'bin' | 'major'>;

const NAME = new RegExp(EXTENSION_NAME_PATTERN);

/** The control files of an installation, by name. */
export async function readControlFiles({ bin }: Pick<Place, 'bin'>): Promise<ControlFile[]> {
  const found = new Map<string, ControlFile>();
  for (const share of shareDirectories(bin)) {
    const directory = join(share, 'extension');
    const files = await entriesOf(directory);
    for (const file of files.filter((entry) => entry.endsWith('.control'))) {
      const name = file.slice(0, -'.control'.length);
      if (!NAME.test(name) || found.has(name)) continue;
      const text = await readFile(join(directory, file), 'utf8').catch(() => null);
      if (text !== null) found.set(name, parseControlFile({ name, directory, files }, text));
    }
  }
  return [...found.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** The output plugins of an installation that the rules know. */
export async function findOutputPlugins(place: Place) {
  const files = (await Promise.all(libraryDirectories(place.bin).map(entriesOf))).flat();
  return OUTPUT_PLUGINS.filter((name) => files.includes(`${name}.so`));
}

const DPKG_LISTS = '/var/lib/dpkg/info';

/** The Debian package of each control file, by its path. */
export async function packagesOfControlFiles(): Promise<ReadonlyMap<string, string>> {
  const packages = new Map<string, string>();
  const lists = (await entriesOf(DPKG_LISTS)).filter(
    (file) => file.includes('postgresql') && file.endsWith('.list'),
  );
  for (const list of lists) {
    const text = await readFile(join(DPKG_LISTS, list), 'utf8').catch(() => '');
    const name = list.slice(0, -'.list'.length).replace(/:\w+$/, '');
    for (const path of text.split('\n')) if (path.endsWith('.control')) packages.set(path, name);
  }
  return packages;
}

// Control files by which PostgreSQL lets the owner of a database create an extension that its
// authors do not call trusted. Servers see them in the place of those of the package
// (docs/decisions/0087-trusted-extensions.md).

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
const asTrusted = (text: string): string => `${text.trimEnd()}\ntrusted = true\n`;

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
