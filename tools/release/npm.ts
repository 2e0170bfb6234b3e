/** The package of npm: `npx howdah up`. */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeTree, setModes, type Source } from './tree.ts';

/**
 * @param target directory for the archive
 * @param scratch an empty directory
 * @returns the name of the archive
 */
export function makeNpmPackage(source: Source, target: string, scratch: string): string {
  makeTree(source, 'npm', scratch);
  copyFileSync(join(source.root, 'README.md'), join(scratch, 'README.md'));
  chmodSync(join(scratch, 'howdah'), 0o755);
  const manifest = manifestOf(readManifest(source.root), readManifest(source.root, 'server'));
  writeFileSync(join(scratch, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  setModes(scratch);
  // npm gives all files of an archive the same moment.
  const made = execFileSync('npm', ['pack', '--ignore-scripts', '--pack-destination', target], {
    cwd: scratch,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return made.trim();
}

type Manifest = Readonly<Record<string, unknown>>;

function readManifest(root: string, workspace?: string): Manifest {
  const path = workspace === undefined ? root : join(root, 'packages', workspace);
  return { ...Object(JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'))) };
}

/** Bundled packages are no dependencies. PostgreSQL is one, where npm has it for the platform. */
export function manifestOf(root: Manifest, server: Manifest): Manifest {
  const { name, version, description, license, type, engines } = root;
  return {
    name,
    version,
    description,
    license,
    type,
    engines,
    os: ['linux'],
    cpu: ['x64', 'arm64'],
    bin: { howdah: './howdah' },
    optionalDependencies: server['optionalDependencies'],
  };
}
