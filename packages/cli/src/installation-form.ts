/** How Howdah came to this machine, and how it is called there. */
import { quotedWord } from '@howdah/contract/shell';
import { readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const FORMS = ['clone', 'npm', 'npx', 'deb', 'image'] as const;
/** npx: a package of npm in npx's cache, which calls of the same version find again. */
export type Form = (typeof FORMS)[number];

/** The directory of the clone or of the package; sources and bundle stand equally deep in it. */
export const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

/** Each package contains a file with its form; a clone has none. */
export function formOf(root: string): Form {
  let text: string;
  try {
    text = readFileSync(join(root, 'installed-as'), 'utf8').trim();
  } catch {
    return 'clone';
  }
  const form = FORMS.find((known) => known === text) ?? 'clone';
  return form === 'npm' && root.includes('/_npx/') ? 'npx' : form;
}

/**
 * The command that calls this program in any other terminal, quoted for a shell: `howdah` where
 * that is found, else its path.
 *
 * @param path the PATH. Directories that npm adds for its own calls are in no other terminal's.
 */
export function ownCommand(root: string, path: string): string {
  const launcher = join(root, 'howdah');
  const found = path
    .split(':')
    .filter((directory) => directory !== '' && !directory.includes('/node_modules/'))
    .map((directory) => realPathOf(join(directory, 'howdah')))
    .find((file) => file !== null);
  // Both have a program `howdah` that knows its home.
  const isPackaged = ['deb', 'image'].includes(formOf(root));
  return isPackaged || found === realPathOf(launcher) ? 'howdah' : quotedWord(launcher);
}

function realPathOf(file: string): string | null {
  try {
    return realpathSync(file);
  } catch {
    return null;
  }
}

/** The lines that bring a newer release to this machine. Databases keep running meanwhile. */
export function upgradeOf(root: string): string[] {
  const command = ownCommand(root, process.env['PATH'] ?? '');
  const start = `${command} down && ${command} up`;
  switch (formOf(root)) {
    case 'clone':
      return [`git -C ${quotedWord(root)} pull`, start];
    case 'npm':
      return ['npm install --global howdah@latest', start];
    case 'npx':
      return [`${command} down`, 'npx howdah@latest up'];
    case 'deb':
      return [
        'apt-get install ./howdah_NEWER_all.deb   # the file of the release, it restarts Howdah',
      ];
    case 'image':
      return ['end the container, and start one of the newer image with the same volume'];
  }
}
