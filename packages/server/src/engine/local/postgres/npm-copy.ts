/**
 * The copy of npm's PostgreSQL beside the data. npm gives files the modes of its caller's umask,
 * and an interrupted start leaves a part of them: each start compares the copy with its source.
 */
import { lstatSync, readdirSync, readlinkSync, type Stats } from 'node:fs';
import { basename, join } from 'node:path';
import { exists, readOrNull } from '../../../lib/processes.ts';
import {
  chmod,
  copyFile,
  ensureDirectory,
  ensureMode,
  rename,
  rm,
  symlink,
} from '../host/root-files.ts';
import { flushFileSystem } from '../host/flush.ts';

/**
 * Makes the copy, or completes one.
 *
 * @param native the directory of that name in the package
 */
export async function ensureNpmCopy(native: string, target: string): Promise<void> {
  if (await exists(target)) {
    // Servers run from it: its files are replaced one by one, and only those that are incomplete.
    if (await copyNpmFiles(native, target)) await flushFileSystem(target);
    return;
  }
  const unfinished = `${target}.new`;
  await copyNpmFiles(native, unfinished);
  await flushFileSystem(unfinished);
  await rename(unfinished, target);
}

/**
 * Copies the files of npm's PostgreSQL that are missing from a directory, or differ in size; opens
 * all to other users.
 *
 * @returns whether anything was copied
 */
export async function copyNpmFiles(native: string, target: string): Promise<boolean> {
  await ensureDirectory(target, 0o755);
  const links = await linksOf(native);
  let changed = false;
  for (const entry of readdirSync(native, { recursive: true, withFileTypes: true })) {
    const from = join(entry.parentPath, entry.name);
    const name = from.slice(native.length + 1);
    if (entry.isDirectory()) await ensureDirectory(join(target, name), 0o755);
    else if (entry.isSymbolicLink()) links.set(name, readlinkSync(from));
    else if (!links.has(name)) changed = (await copyIfOther(from, join(target, name))) || changed;
  }
  for (const [name, to] of links) changed = (await linkIfOther(to, join(target, name))) || changed;
  return changed;
}

async function copyIfOther(from: string, to: string): Promise<boolean> {
  const source = lstatSync(from);
  const found = lstatSync(to, { throwIfNoEntry: false });
  const mode = (source.mode & 0o100) === 0 ? 0o644 : 0o755;
  if (isWhole(found, source)) {
    await ensureMode(to, mode);
    return false;
  }
  await copyFile(from, `${to}.new`);
  await chmod(`${to}.new`, mode);
  await rename(`${to}.new`, to);
  return true;
}

const isWhole = (found: Stats | undefined, source: Stats): boolean =>
  found?.isFile() === true && found.size === source.size;

async function linkIfOther(to: string, path: string): Promise<boolean> {
  const isLink = lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true;
  if (isLink && readlinkSync(path) === to) return false;
  await rm(path, { force: true });
  await symlink(to, path);
  return true;
}

/**
 * The links between libraries that the package leaves to its install script, which npm may refuse
 * to run: the target of each, by its name below `native`.
 */
async function linksOf(native: string): Promise<Map<string, string>> {
  const links: unknown = JSON.parse((await readOrNull(join(native, 'pg-symlinks.json'))) ?? '[]');
  if (!Array.isArray(links)) return new Map();
  return new Map(
    links
      .map(parseLink)
      .map(({ source, target }) => [target.replace(/^native\//, ''), basename(source)]),
  );
}

function parseLink(link: unknown): { source: string; target: string } {
  if (
    typeof link === 'object' &&
    link !== null &&
    'source' in link &&
    'target' in link &&
    typeof link.source === 'string' &&
    typeof link.target === 'string'
  ) {
    return { source: link.source, target: link.target };
  }
  throw new Error(
    'pg-symlinks.json of the PostgreSQL that npm installed: expected a list of {source, target}',
  );
}
