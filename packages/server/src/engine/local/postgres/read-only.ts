/**
 * The module that makes sessions read-only (packages/server/postgresql/howdah_read_only.c),
 * compiled on this machine for each PostgreSQL whose headers and a C compiler are there
 * (docs/decisions/0038-read-only-connections.md).
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { messageOf } from '@howdah/contract/thrown';
import { run } from '../../../lib/run.ts';
import { ensureDirectory, ensureMode, readFile, rename, rm } from '../host/root-files.ts';
import { READ_ONLY_MODULE_SOURCE } from '../../../paths.ts';

/**
 * Where an installation is from: a package of the system, a directory or link of the operator's in
 * the data directory, or npm.
 */
export type Source = 'system' | 'linked' | 'npm';

/** The PostgreSQL that a module is compiled for. */
type Target = { name: string; major: number; bin: string; source: Source };

/**
 * The path of the module, or what is missing for it; null: nothing, it is compiled when Howdah
 * starts.
 */
export type ReadOnlyModule = { path: string } | { path: null; missing: string | null };

/** In order of preference. tcc needs 1 MB where gcc needs 200. */
const COMPILERS = ['cc', 'gcc', 'clang', 'tcc'] as const;

/** Where the launcher puts the headers of Debian's package, without its compilers. */
const OUR_HEADERS = '/usr/local/include/howdah';

/**
 * Compiles the module for an installation, unless that was done before.
 *
 * @param directory for modules; null: nothing is made (`howdah doctor`)
 */
export async function readOnlyModule(
  target: Target,
  directory: string | null,
): Promise<ReadOnlyModule> {
  const headers = headersOf(target);
  if (headers === null)
    return {
      path: null,
      missing: `the server headers of PostgreSQL ${target.major} are not installed`,
    };
  const compiler = await findCompiler();
  if (compiler === null) return { path: null, missing: 'no C compiler is installed' };
  if (directory === null) return { path: null, missing: null };
  try {
    return { path: await compile(target, { directory, headers, compiler }) };
  } catch (error) {
    return { path: null, missing: messageOf(error) };
  }
}

/** npm's PostgreSQL has no headers, and those of another build may differ. */
function headersOf({ major, bin, source }: Target): string | null {
  if (source === 'npm' || process.platform !== 'linux') return null;
  const own = join(dirname(bin), 'include', 'server');
  const candidates =
    source === 'linked'
      ? [own]
      : [`/usr/include/postgresql/${major}/server`, own, join(OUR_HEADERS, `postgresql-${major}`)];
  return candidates.find((path) => existsSync(join(path, 'postgres.h'))) ?? null;
}

/** The path of a compiler. Its name is in the path: `cc` may be a link to any of them. */
async function findCompiler(): Promise<string | null> {
  for (const compiler of COMPILERS) {
    const found = await run('sh', ['-c', 'command -v "$1"', 'sh', compiler]).catch(() => null);
    if (found !== null) return realpath(found.trim());
  }
  return null;
}

async function compile(
  { name, major, bin }: Target,
  { directory, headers, compiler }: { directory: string; headers: string; compiler: string },
): Promise<string> {
  const source = await readFile(READ_ONLY_MODULE_SOURCE);
  const edition = createHash('sha256').update(source).digest('hex').slice(0, 12);
  const path = join(directory, `read-only-${name}-${edition}.so`);
  if (existsSync(path)) {
    await ensureMode(path, 0o755);
    return path;
  }
  await ensureDirectory(directory, 0o755);
  const unfinished = `${path}.${process.pid}`;
  try {
    const options = ['-shared', '-fPIC', '-O2', `-I${headers}`, `-DHOWDAH_MAJOR=${major}`];
    const isTcc = basename(compiler).endsWith('tcc');
    // TCC does not know this function of other compilers.
    const forTcc = isTcc ? ['-D__builtin_unreachable()=((void)0)'] : [];
    await run(compiler, [...options, ...forTcc, '-o', unfinished, READ_ONLY_MODULE_SOURCE]);
    // TCC asks for an executable stack, which glibc refuses to a module.
    if (isTcc) await run('patchelf', ['--clear-execstack', unfinished]);
    await assertLoads(join(bin, 'postgres'), unfinished);
    await rename(unfinished, path);
  } finally {
    await rm(unfinished, { force: true });
  }
  return path;
}

/** A module that cannot be loaded would keep every server from starting. */
async function assertLoads(postgres: string, module: string): Promise<void> {
  const { stderr } = await promisify(execFile)(postgres, ['--version'], {
    // Blanks and colons in a path would separate two modules.
    cwd: dirname(module),
    env: { LD_PRELOAD: `./${basename(module)}`, LD_BIND_NOW: '1' },
  });
  if (stderr !== '') throw new Error(`the module for read-only sessions does not load: ${stderr}`);
}
