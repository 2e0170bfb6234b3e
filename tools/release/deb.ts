/** The package of Debian. */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { makeTree, setModes, type Source } from './tree.ts';

export const MAINTAINER = 'The Howdah developers <howdah@localhost>';

/** Debian 13 has the first alternative; an older release gets the last from packages of ours. */
const NEEDS =
  'nodejs (>= 20.19) | howdah-nodejs, ' +
  'postgresql-17 | postgresql-16 | postgresql-18 | howdah-postgresql, ' +
  'pgbouncer, haproxy, adduser, iproute2, nftables, util-linux, init-system-helpers';
const MAKES_BETTER =
  'postgresql-17-timescaledb, postgresql-17-pgvector, pgbackrest, postgresql-client';

const SHELLS = {
  bash: 'usr/share/bash-completion/completions/howdah',
  zsh: 'usr/share/zsh/vendor-completions/_howdah',
  fish: 'usr/share/fish/vendor_completions.d/howdah.fish',
} as const;

/** Compressed without a name and a moment. */
const gzip = (text: string): Buffer => gzipSync(text, { level: 9 });

/**
 * @param target directory for the archive
 * @param scratch an empty directory
 */
export function makeDebianPackage(source: Source, target: string, scratch: string): void {
  const { root, version } = source;
  const put = (path: string, content: string | Buffer, mode = 0o644): void => {
    mkdirSync(join(scratch, dirname(path)), { recursive: true });
    writeFileSync(join(scratch, path), content);
    chmodSync(join(scratch, path), mode);
  };
  const copy = (from: string, path: string, mode = 0o644): void => {
    mkdirSync(join(scratch, dirname(path)), { recursive: true });
    cpSync(join(root, 'deploy/debian', from), join(scratch, path));
    chmodSync(join(scratch, path), mode);
  };
  const tree = join(scratch, 'usr/lib/howdah');
  mkdirSync(tree, { recursive: true });
  makeTree(source, 'deb', tree);
  // The package has a launcher of its own.
  rmSync(join(tree, 'howdah'));
  copy('howdah', 'usr/bin/howdah', 0o755);
  copy('howdah.service', 'usr/lib/systemd/system/howdah.service');
  copy('howdah.env', 'etc/howdah/howdah.env');
  for (const script of ['postinst', 'prerm', 'postrm']) copy(script, `DEBIAN/${script}`, 0o755);
  copy('templates', 'DEBIAN/templates');
  put('DEBIAN/conffiles', '/etc/howdah/howdah.env\n');
  const howdah = (...args: string[]): string =>
    execFileSync('node', [join(tree, 'packages/cli/dist/howdah.js'), ...args], {
      encoding: 'utf8',
    });
  for (const [shell, path] of Object.entries(SHELLS)) put(path, howdah('completion', shell));
  put('usr/share/man/man1/howdah.1.gz', gzip(manualOf(source, howdah)));
  const doc = 'usr/share/doc/howdah';
  cpSync(join(root, 'LICENSE'), join(scratch, doc, 'copyright'));
  cpSync(join(root, 'CHANGELOG.md'), join(scratch, doc, 'changelog'));
  const control = {
    Package: 'howdah',
    Version: version,
    Architecture: 'all',
    Maintainer: MAINTAINER,
    Section: 'database',
    Priority: 'optional',
    Depends: `${NEEDS}, debconf (>= 0.5) | debconf-2.0`,
    Recommends: MAKES_BETTER,
    Description:
      'your own Postgres cloud\n' +
      ' One command starts a cloud of PostgreSQL servers on this machine: forks,\n' +
      ' replicas, verified backups, poolers, by the API of Tiger Cloud.',
  };
  put('DEBIAN/control', controlOf(control));
  buildPackage(scratch, target, source.madeAt);
}

/** The file `control` of Debian policy 5.3. */
export function controlOf(fields: Readonly<Record<string, string>>): string {
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}`);
  return `${lines.join('\n')}\n`;
}

/** The manual is the help of the command line, with the commands of each group. */
function manualOf({ version, madeAt }: Source, howdah: (...args: string[]) => string): string {
  const day = madeAt.toISOString().slice(0, 10);
  const verbatim = (text: string): string =>
    `.nf\n${text.replaceAll('\\', '\\e').replaceAll(/^([.'])/gm, '\\&$1')}.fi\n`;
  return [
    `.TH HOWDAH 1 ${day} "Howdah ${version}" "User Commands"`,
    '.SH NAME',
    'howdah \\- your own Postgres cloud',
    '.SH SYNOPSIS',
    verbatim('howdah [options] COMMAND\n'),
    '.SH DESCRIPTION',
    verbatim(howdah('--help')),
    '.SH FILES',
    '.TP\n.I /etc/howdah/howdah.env\nsettings of the service',
    '.TP\n.I /var/lib/howdah/home\ndatabases, backups, keys and logs',
    '',
  ].join('\n');
}

/** Builds an archive whose bytes depend on the files only. */
export function buildPackage(directory: string, target: string, madeAt: Date): void {
  setModes(directory);
  for (const file of ['.', ...readdirSync(directory, { recursive: true, encoding: 'utf8' })])
    lutimesSync(join(directory, file), madeAt, madeAt);
  const environment = { ...process.env, SOURCE_DATE_EPOCH: String(madeAt.getTime() / 1000) };
  execFileSync('dpkg-deb', ['--root-owner-group', '-Zxz', '--build', directory, target], {
    env: environment,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}
