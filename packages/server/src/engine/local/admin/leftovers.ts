/**
 * Finds what killed programs and installations that are gone have left on the machine, for `howdah
 * audit` and `howdah doctor`: shared memory, mount lists, cgroups, packet filters, networks of
 * VPCs, store images. Changes nothing.
 */
import { unescaped } from '../../../lib/mounts.ts';
import { quotedWord } from '@howdah/contract/shell';
import { readlinkSync } from 'node:fs';
import { lstat, readdir, realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { listTables, type Table } from '../host/egress.ts';
import { listGroups, type Group } from '../host/limits.ts';
import { findSystemUser } from '../../../lib/system-users.ts';
import { groupName, SERVER_USERS } from '../host/machine.ts';
import { strayNetworks } from '../network/networks.ts';
import { ownCapabilities } from '../../../lib/kernel-capabilities.ts';
import { allPids, exists, noneOf, openRegular, readOrNull } from '../../../lib/processes.ts';
import { REGISTRY, type UidRange } from '../host/users.ts';

/** Something unused, in words, and the command that removes it. */
export type Leftover = { found: string; remedy: string };

/** Younger things may be in use in a moment. */
const YOUNG_MS = 300_000;
const SHARED_MEMORY = '/dev/shm';

/** @param data the data directories of the installation that asks, the first one first */
export async function findLeftovers(
  data: readonly string[],
  uidRange: UidRange,
): Promise<Leftover[]> {
  const isRoot = process.getuid?.() === 0;
  const [files, groups, tables, networks] = await Promise.all([
    listFiles(SHARED_MEMORY),
    listGroups(data[0] ?? ''),
    listTables(),
    isRoot ? strayNetworks(exists) : [],
  ]);
  const server = isRoot
    ? ((await findSystemUser(...SERVER_USERS))?.uid ?? null)
    : (process.getuid?.() ?? null);
  const isOurs = (uid: number): boolean =>
    uid === server || (isRoot && uid >= uidRange[0] && uid <= uidRange[1]);
  const segments = files.filter(({ name, uid }) => SEGMENT.test(name) && isOurs(uid));
  const gone = await Promise.all(tables.map(async ({ home }) => !(await exists(home))));
  return [
    ...(segments.length === 0 || (isRoot && !ownCapabilities().has('CAP_SYS_PTRACE'))
      ? [] // without this capability the kernel does not show which of them are in use
      : straySegments(segments, await segmentsInUse(), Date.now())),
    ...strayLists(files, Date.now()),
    ...strayGroups(groups, await knownGroups(data, tables), Date.now()),
    ...tables
      .filter((_, index) => gone[index])
      .map((table) => ofGone('packet filter', table, 'nft delete table inet')),
    ...networks.map((network) => ofGone('network', network, 'ip netns del')),
    ...(isRoot
      ? strayImages(await loopFiles(), (await readOrNull('/proc/self/mountinfo')) ?? '')
      : []),
  ];
}

function ofGone(
  what: string,
  { name, home }: Pick<Table, 'name' | 'home'>,
  command: string,
): Leftover {
  const where = home === '' ? '' : `; its data was in ${home}`;
  return {
    found: `${what} ${name} belongs to an installation that no longer exists${where}`,
    remedy: `${command} ${name}`,
  };
}

// ── shared memory
// ────────────────────────────────────────────────────────────────────────────────────────────────

/** As PostgreSQL and openMounts (sandbox.ts) name them: nothing in these names needs quotes. */
const SEGMENT = /^PostgreSQL\.\d+$/;
const MOUNT_LIST = /^howdah-[0-9a-f]{16}$/;

export type FileSeen = { name: string; uid: number; changedMs: number };

async function listFiles(directory: string): Promise<FileSeen[]> {
  const names = (await readdir(directory).catch(noneOf('ENOENT', 'EACCES'))) ?? [];
  const infos = await Promise.all(
    names.map((name) => lstat(join(directory, name)).catch(noneOf('ENOENT'))),
  );
  return names.flatMap((name, index) => {
    const info = infos[index];
    return info == null ? [] : [{ name, uid: info.uid, changedMs: info.mtimeMs }];
  });
}

/**
 * Shared memory of servers that were killed where servers have no /dev/shm of their own, by user.
 */
export function straySegments(
  segments: readonly FileSeen[],
  used: ReadonlySet<string>,
  nowMs: number,
): Leftover[] {
  const stray = segments.filter(
    ({ name, changedMs }) => nowMs - changedMs >= YOUNG_MS && !used.has(name),
  );
  return [...new Set(stray.map(({ uid }) => uid))].map((uid) => {
    const paths = stray
      .filter((one) => one.uid === uid)
      .map(({ name }) => join(SHARED_MEMORY, name));
    return {
      found:
        `shared memory of user ${uid} belongs to no running server ` +
        `(segments: ${paths.length})`,
      remedy: `rm ${paths.join(' ')}`,
    };
  });
}

/** The lists of mounts that a start which was interrupted did not remove. */
export function strayLists(files: readonly FileSeen[], nowMs: number): Leftover[] {
  return files
    .filter(({ name, changedMs }) => MOUNT_LIST.test(name) && nowMs - changedMs >= YOUNG_MS)
    .map(({ name }) => join(SHARED_MEMORY, name))
    .map((path) => ({
      found: `${path}, a list of mounts, is of a start that was interrupted`,
      remedy: `rm ${path}`,
    }));
}

/**
 * The segments that a running process maps, and those that a running server keeps while no process
 * of it maps them.
 */
async function segmentsInUse(): Promise<Set<string>> {
  const maps = await Promise.all((await allPids()).map((pid) => readOrNull(`/proc/${pid}/maps`)));
  const mapped = new Set(
    maps.flatMap((text) =>
      [...(text ?? '').matchAll(/\/dev\/shm\/(PostgreSQL\.\d+)$/gm)].map(([, name = '']) => name),
    ),
  );
  const kept = await Promise.all(
    [...mapped].map(async (name) => segmentsOf(await readStart(join(SHARED_MEMORY, name)))),
  );
  return new Set([...mapped, ...kept.flat()]);
}

/** Enough for the control segment of a server with thousands of connections. */
const CONTROL_BYTES = 1024 ** 2;

async function readStart(path: string): Promise<Buffer> {
  const file = await openRegular(path);
  if (file === null) return Buffer.alloc(0);
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(CONTROL_BYTES), 0, CONTROL_BYTES, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

/**
 * The segments that a server's control segment lists; none: it is another segment.
 * `dsm_control_header` of PostgreSQL's dsm.c.
 */
export function segmentsOf(control: Buffer): string[] {
  if (control.length < CONTROL_HEADER_BYTES || control.readUInt32LE(0) !== CONTROL_MAGIC) return [];
  const fitting = Math.floor((control.length - CONTROL_HEADER_BYTES) / CONTROL_ITEM_BYTES);
  const items = Math.min(control.readUInt32LE(4), fitting);
  return Array.from(
    { length: items },
    (_, n) => `PostgreSQL.${control.readUInt32LE(CONTROL_HEADER_BYTES + n * CONTROL_ITEM_BYTES)}`,
  );
}
const CONTROL_MAGIC = 0x9a503d32;
const CONTROL_HEADER_BYTES = 16;
const CONTROL_ITEM_BYTES = 40;

// ── cgroups
// ─────────────────────────────────────────────────────────────────────────────────────────────────

/** Cgroups without a process, of unknown installations. */
export function strayGroups(
  groups: readonly Group[],
  known: ReadonlySet<string>,
  nowMs: number,
): Leftover[] {
  return groups
    .filter(
      ({ name, hasProcess, changedMs }) =>
        !known.has(name) && !hasProcess && nowMs - changedMs >= YOUNG_MS,
    )
    .map(({ name, paths }) => ({
      found: `cgroup ${name} has no process and belongs to no installation that is known here`,
      remedy: `find ${paths.map(quotedWord).join(' ')} -type d -delete`,
    }));
}

/** The cgroups of this installation and of all that have a packet filter or users of services. */
async function knownGroups(
  data: readonly string[],
  tables: readonly Table[],
): Promise<Set<string>> {
  const uids = (await readdir(REGISTRY).catch(noneOf('ENOENT', 'EACCES'))) ?? [];
  // A link points to ROOT/services/ID or ROOT/precloned/NAME.
  const registered = uids
    .filter((uid) => /^\d+$/.test(uid))
    .flatMap((uid) => linkOf(join(REGISTRY, uid)).map((path) => dirname(dirname(path))));
  const paths = await Promise.all(
    data.map((path) =>
      realpath(path).then(
        (real) => [real],
        () => [],
      ),
    ),
  );
  const roots = new Set([...paths.flat(), ...tables.map(({ home }) => home), ...registered]);
  const names = await Promise.all(
    [...roots].map((root) => groupName(root).catch(noneOf('ENOENT', 'ENOTDIR'))),
  );
  return new Set(names.filter((name) => name !== null));
}

function linkOf(path: string): string[] {
  try {
    return [readlinkSync(path)];
  } catch {
    return []; // it has just been removed
  }
}

// ── store images
// ─────────────────────────────────────────────────────────────────────────────────────────────────

type LoopFile = { device: string; file: string };

async function loopFiles(): Promise<LoopFile[]> {
  const names = ((await readdir('/sys/block').catch(noneOf('ENOENT'))) ?? []).filter((name) =>
    name.startsWith('loop'),
  );
  const files = await Promise.all(
    names.map((name) => readOrNull(`/sys/block/${name}/loop/backing_file`)),
  );
  return names.flatMap((name, index) => {
    const file = files[index];
    return file == null ? [] : [{ device: `/dev/${name}`, file: file.trim() }];
  });
}

/**
 * Store images that are in use by the kernel alone: their file is removed.
 *
 * @param mounts as /proc/self/mountinfo has them
 */
export function strayImages(devices: readonly LoopFile[], mounts: string): Leftover[] {
  const fields = mounts.split('\n').map((line) => line.split(' '));
  return devices
    .filter(({ file }) => IMAGE.test(basename(file)))
    .map(({ device, file }) => {
      const at = fields
        .filter((words) => words.includes(device))
        .map((words) => unescaped(words[4] ?? ''));
      return {
        found:
          `${device} holds the store image ${file.replace(DELETED, '')}, ` +
          `which is deleted${at.length === 0 ? '' : `, and is mounted on ${at.join(', ')}`}`,
        remedy:
          at.length === 0 ? `losetup --detach ${device}` : `umount ${at.map(quotedWord).join(' ')}`,
      };
    });
}
const DELETED = / \(deleted\)$/;
/** Those of image.ts; beside a data directory outside of the home they have its name. */
const IMAGE = /^(data|[0-9a-f]{8})\.img(\.new|\.checked)? \(deleted\)$/;
