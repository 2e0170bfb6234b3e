/**
 * Images without a registry and without a container engine: that of the control plane, as its
 * Containerfile makes it, and one of PgBouncer. The programs come from this machine, with the
 * libraries that they are linked to.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const REPOSITORY = fileURLToPath(new URL('../../../', import.meta.url));
const CONTAINERFILE = join(REPOSITORY, 'deploy/kubernetes/Containerfile');
const NODE = '/usr/local/bin/node';

const run = promisify(execFile);

/**
 * @param directory for its files
 * @returns the path of an archive that containerd imports
 */
export async function makeImage(name: string, directory: string): Promise<string> {
  const root = join(directory, 'root');
  const lines = (await readFile(CONTAINERFILE, 'utf8')).split('\n');
  await copyProgram(process.execPath, root, NODE);
  await mkdir(join(root, 'tmp'));
  for (const line of lines) {
    const [, from, to] = /^COPY (\S+) (\S+)$/.exec(line) ?? [];
    if (from !== undefined && to !== undefined) await copy(join(REPOSITORY, from), join(root, to));
  }
  return archiveOf(name, directory, {
    User: wordsAfter(lines, 'USER'),
    Entrypoint: JSON.parse(wordsAfter(lines, 'ENTRYPOINT')),
    Cmd: JSON.parse(wordsAfter(lines, 'CMD')),
    Env: [`PATH=${dirname(NODE)}`],
  });
}

/** PgBouncer of this machine, and what the pod of a pooler runs beside it. */
export async function makePoolerImage(
  directory: string,
): Promise<{ name: string; archive: string }> {
  const { stdout } = await run('pgbouncer', ['--version'], { env: { PATH: PROGRAMS } });
  const [, version] = /^PgBouncer (\d+\.\d+\.\d+)/.exec(stdout) ?? [];
  if (version === undefined) throw new Error(`PgBouncer has no version: ${stdout}`);
  const root = join(directory, 'root');
  for (const program of ['pgbouncer', 'sh', 'sleep', 'readlink']) {
    const found = await run('which', [program], { env: { PATH: PROGRAMS } });
    const path = found.stdout.trim();
    await copyProgram(path, root, path);
  }
  const name = `localhost/howdah/pgbouncer:${version}`;
  const archive = await archiveOf(name, directory, { User: 'root', Env: [`PATH=${PROGRAMS}`] });
  return { name, archive };
}

const PROGRAMS = '/usr/sbin:/usr/bin:/sbin:/bin';

/** @returns the path of an archive with the directory `root` of this directory as its one layer */
async function archiveOf(name: string, directory: string, settings: object): Promise<string> {
  await run('tar', ['-C', join(directory, 'root'), '-cf', join(directory, 'layer.tar'), '.']);
  const layer = await readFile(join(directory, 'layer.tar'));
  const config = {
    architecture: process.arch === 'x64' ? 'amd64' : process.arch,
    os: 'linux',
    config: settings,
    rootfs: {
      type: 'layers',
      diff_ids: [`sha256:${createHash('sha256').update(layer).digest('hex')}`],
    },
  };
  const manifest = [{ Config: 'config.json', RepoTags: [name], Layers: ['layer.tar'] }];
  await writeFile(join(directory, 'config.json'), JSON.stringify(config));
  await writeFile(join(directory, 'manifest.json'), JSON.stringify(manifest));
  const archive = join(directory, 'image.tar');
  await run('tar', ['-C', directory, '-cf', archive, 'manifest.json', 'config.json', 'layer.tar']);
  return archive;
}

/** Copies a program with its libraries. */
async function copyProgram(from: string, root: string, to: string): Promise<void> {
  await copy(from, join(root, to));
  for (const library of await librariesOf(from)) await copy(library, join(root, library));
}

async function copy(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true });
  await cp(from, to, { recursive: true, dereference: true });
}

/** The libraries of a program, and what loads them. */
async function librariesOf(program: string): Promise<string[]> {
  const { stdout } = await run('ldd', [program]);
  return stdout.split('\n').flatMap((line) => /(\/\S+) \(0x/.exec(line)?.[1] ?? []);
}

function wordsAfter(lines: readonly string[], instruction: string): string {
  const line = lines.find((one) => one.startsWith(`${instruction} `));
  if (line === undefined) throw new Error(`the Containerfile has no ${instruction}`);
  return line.slice(instruction.length + 1);
}
