/** The files of Howdah that a package of npm, a package of Debian and an image all contain. */
import {
  chmodSync,
  cpSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { billOfMaterials, bundledPackages, licencesOf } from './bundled.ts';

/** Places are those of a clone, so that the code finds its files in both. */
const PATHS = [
  'packages/cli/dist',
  'packages/mcp/dist',
  'packages/server/dist',
  'packages/server/migrations',
  'packages/server/postgresql',
  'packages/console/dist',
  'openapi/openapi.json',
  'howdah',
  'LICENSE',
  'CHANGELOG.md',
];

/** The checkout that a release is made from. `madeAt` is the moment of its commit. */
export type Source = Readonly<{
  root: string;
  version: string;
  madeAt: Date;
  inputs: readonly string[];
}>;

/** Which `packages/cli/src/installation-form.ts` reads. */
export type Form = 'npm' | 'deb' | 'image';

/** Gives files and directories the modes of a package, whatever the umask of its maker is. */
export function setModes(directory: string): void {
  for (const file of ['.', ...readdirSync(directory, { recursive: true, encoding: 'utf8' })]) {
    const path = join(directory, file);
    const found = lstatSync(path);
    const isRun = found.isDirectory() || (found.mode & 0o100) !== 0;
    // A link has no mode of its own.
    if (!found.isSymbolicLink()) chmodSync(path, isRun ? 0o755 : 0o644);
  }
}

/** Copies the files into an empty directory, without source maps: three times the code. */
export function makeTree(
  { root, version, madeAt, inputs }: Source,
  form: Form,
  target: string,
): void {
  for (const path of PATHS) {
    mkdirSync(dirname(join(target, path)), { recursive: true });
    cpSync(join(root, path), join(target, path), { recursive: true });
  }
  for (const file of readdirSync(target, { recursive: true, encoding: 'utf8' }))
    if (file.endsWith('.map')) rmSync(join(target, file));
  writeFileSync(join(target, 'installed-as'), `${form}\n`);
  const packages = bundledPackages(root, inputs);
  writeFileSync(join(target, 'THIRD-PARTY-LICENSES.txt'), licencesOf(packages));
  writeFileSync(join(target, 'sbom.cdx.json'), billOfMaterials(version, madeAt, packages));
}
