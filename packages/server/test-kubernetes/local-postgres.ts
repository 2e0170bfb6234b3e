/** The PostgreSQL of the rig for a region on this machine, as in the image of its pods. */
import { execFile } from 'node:child_process';
import { copyFile, cp, mkdir, readdir, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { exists, installationPlaces } from '../test/probe.ts';

const POSTGRES = fileURLToPath(new URL('../../../tools/kube-rig/postgres.sh', import.meta.url));

/**
 * The machine may have other major versions only than the image of the rig.
 *
 * @param snapshots the directory of containerd with the files of images
 */
export async function linkPostgres(home: string, snapshots: string): Promise<void> {
  const { stdout } = await promisify(execFile)(POSTGRES);
  const { installations } = installationPlaces(join(home, 'data'));
  await mkdir(installations, { recursive: true, mode: 0o755 });
  // A copy: other users of the machine cannot read the cache of this one.
  const copied = join(installations, 'rig');
  await cp(stdout.trim(), copied, { recursive: true, verbatimSymlinks: true });
  await addVector(join(copied, 'share', 'postgresql', 'extension'));
  await addBaseBackup(copied, snapshots);
}

const LOADER = 'ld-linux-x86-64.so.2';
const [LIBRARIES, BASE_BACKUP] = [
  'usr/lib/x86_64-linux-gnu',
  'usr/lib/postgresql/17/bin/pg_basebackup',
];

/**
 * The PostgreSQL of this machine has none. That of the image needs newer libraries than this
 * machine may have, so they go along.
 */
async function addBaseBackup(copied: string, snapshots: string): Promise<void> {
  const image = await imageIn(snapshots);
  const libraries = join(image, LIBRARIES);
  const program = join(image, BASE_BACKUP);
  const loader = join(libraries, LOADER);
  const within = ['--library-path', libraries];
  const { stdout } = await promisify(execFile)(loader, [...within, '--list', program]);
  const needed = [...stdout.matchAll(/=> (\S+) \(/g)].map(([, path = '']) => path);
  const own = join(copied, 'base-backup');
  await mkdir(own);
  for (const path of new Set([loader, program, ...needed]))
    await copyFile(path, join(own, basename(path)));
  const command = `${own}/${LOADER} --library-path ${own} ${own}/pg_basebackup`;
  const script = `#!/bin/sh\nexec ${command} "$@"\n`;
  await writeFile(join(copied, 'bin', 'pg_basebackup'), script, { mode: 0o755 });
}

/** The files of the image of PostgreSQL, as the node of the rig has them. */
async function imageIn(snapshots: string): Promise<string> {
  for (const name of await readdir(snapshots)) {
    const image = join(snapshots, name, 'fs');
    if (await exists(join(image, BASE_BACKUP))) return image;
  }
  throw new Error('the node has no image of PostgreSQL');
}

/** The version of pgvector in the image of the rig, Debian 13, and one that no image has. */
export const [VECTOR, NO_VECTOR] = ['0.8.0', '0.0.1'];

/** An extension of the name and versions that count for a move, with something in it. */
async function addVector(directory: string): Promise<void> {
  const control = `default_version = '${VECTOR}'\ntrusted = true\n`;
  await writeFile(join(directory, 'vector.control'), control);
  for (const version of [VECTOR, NO_VECTOR]) {
    const sql = 'create function vector_of_a_test() returns int language sql return 1;\n';
    await writeFile(join(directory, `vector--${version}.sql`), sql);
  }
}
