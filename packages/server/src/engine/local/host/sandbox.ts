/**
 * The file system that a server of ours sees: a mount namespace of its own with the system
 * read-only, a private /tmp and /dev/shm, and the directories of its own service. Nothing else of
 * the machine is in it, and all of it vanishes with the server
 * (docs/decisions/0024-mount-namespaces.md).
 *
 * The new root is a directory of empty mount points, `rootfs`. It is assembled on /sys, where no
 * data of ours is, and becomes the root.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import {
  lstat,
  mkdir,
  open,
  readFile,
  readlink,
  realpath,
  rm,
  writeFile,
  type FileHandle,
} from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import type { Size } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import type { Installation } from '../postgres/installations.ts';
import type { Layout } from './layout.ts';
import { noneOf } from '../../../lib/processes.ts';
import { ensureDirectories } from './root-files.ts';
import { run } from '../../../lib/run.ts';
import { ACCOUNT_FILES, EMPTY, entry, makeRootfs, MIB, NEW_ROOT, SYSTEM, tmpfs } from './rootfs.ts';

/**
 * A PID namespace per server, the certain fence: when its first process is gone, so are all others.
 */
export type Namespaces = 'as root' | 'as user' | 'none';

/**
 * Whether servers get a mount namespace; `system`: the entries of its fstab that all servers share.
 */
export type Sandbox =
  | { way: 'mounts'; rootfs: string; system: readonly string[]; root: Root; note: string }
  | { way: 'none'; note: string };

/** Whether `/` is a mount point, or a directory as in a chroot. */
type Root = 'mount' | 'directory';

/** A file that is seen at the place of another one, which exists. */
export type SeenFile = { readonly source: string; readonly target: string };

/** The files that a server or a program beside it sees besides the system. */
export type View = {
  /** The program that is run; its installation is visible. */
  program: string;
  /** The directory of its service, which it may write as far as its user may. */
  own: string;
  /** Directories of services that it reads: whom it follows or recovers from. */
  others: readonly string[];
  /** The directory of its passwd and group, where it has them. */
  config: string;
  /** Files that it sees instead of those of the system or of its installation; default: none. */
  instead?: readonly SeenFile[];
  sharedMemoryBytes: number;
};

/** A command around a program, and the mounts for it; null: it sees what we see. */
export type Enclosure = { within: readonly string[]; mounts: string | null };

/**
 * In a chroot whose root is no mount point there is nothing that could be made private or be left
 * by pivot_root(2): the root becomes a mount of its own, on /proc, which is one. Then the shell
 * begins again in it.
 */
const ROOT_AS_MOUNT =
  'mount -n --make-private /proc && mount -n --rbind / /proc && ' +
  'mount -n --make-rprivate /proc && exec chroot /proc "$@"';

/**
 * Mounts what file descriptor 3 lists, leaves the old root, and becomes the program. Arguments: its
 * working directory, the command. The first umask is for mount points.
 *
 * @param left what is unmounted once the new root is in place
 */
const enter = (left: string): string =>
  `umask 022 && mount -n -a -T /proc/self/fd/3 && umask 077 && cd ${NEW_ROOT} && ` +
  `pivot_root . old && umount -n -l ${left} && cd "$1" && shift && exec "$@" 3<&-`;

/** Flags of `unshare` for a PID namespace. */
export const UNSHARE_AS_ROOT = ['--pid', '--fork', '--kill-child=SIGKILL'] as const;
export const UNSHARE_AS_USER = ['--user', '--map-current-user', ...UNSHARE_AS_ROOT] as const;
const UNSHARE_MOUNTS = ['--mount', '--ipc'] as const;

// ── at the start of the control plane
// ────────────────────────────────────────────────────────────────────────────

/**
 * Makes the mount points, and finds out by trying whether servers can be put into mount namespaces.
 */
export async function prepareSandbox(
  layout: Layout,
  namespaces: Namespaces,
  installations: readonly Installation[],
): Promise<Sandbox> {
  if (namespaces === 'none')
    return { way: 'none', note: noteOf('PID namespaces are not allowed here') };
  const system = await makeRootfs(layout.rootfs);
  const sandbox: Sandbox = {
    way: 'mounts',
    rootfs: layout.rootfs,
    system,
    root: await findRoot(),
    note: MOUNTS_NOTE,
  };
  const [installation] = installations;
  const program = installation === undefined ? '/bin/true' : join(installation.bin, 'postgres');
  try {
    await mkdir(layout.templates, { recursive: true });
    const view = {
      program,
      own: layout.templates,
      others: [],
      config: layout.templates,
      sharedMemoryBytes: MIB,
    };
    await tryOut(await encloseServer({ layout, namespaces, sandbox }, view), [
      program,
      '--version',
    ]);
    return sandbox;
  } catch (error) {
    return { way: 'none', note: noteOf(messageOf(error)) };
  }
}

/** The result of {@link prepareSandbox}, as far as it can be found without making anything. */
export async function foreseeSandbox(
  namespaces: Namespaces,
): Promise<{ way: Sandbox['way']; note: string }> {
  if (namespaces === 'none')
    return { way: 'none', note: noteOf('PID namespaces are not allowed here') };
  try {
    const probe =
      `mount -n -t tmpfs tmpfs ${NEW_ROOT} && mkdir ${NEW_ROOT}/proc && ` +
      `mount -n -t proc proc ${NEW_ROOT}/proc`;
    const [command, ...args] = inMounts(unshareFlags(namespaces), await findRoot());
    await run(command, [...args, 'sh', '-c', probe]);
    return { way: 'mounts', note: MOUNTS_NOTE };
  } catch (error) {
    return { way: 'none', note: noteOf(messageOf(error)) };
  }
}

const MOUNTS_NOTE =
  'a server sees its own service and a read-only system, with a private /tmp, /dev/shm, ' +
  '/proc and System V memory';
const noteOf = (why: string): string =>
  'a server sees the whole machine as far as its user may, and a killed one leaves its ' +
  `shared memory behind: mount namespaces cannot be had (${why})`;

async function tryOut({ within, mounts }: Enclosure, command: readonly string[]): Promise<void> {
  const file = `/dev/shm/howdah-${randomBytes(8).toString('hex')}`;
  try {
    await writeFile(file, mounts ?? '', { flag: 'wx', mode: 0o600 });
    await run('sh', ['-c', 'exec 3<"$1"; shift; exec "$@"', 'sh', file, ...within, ...command]);
  } finally {
    await rm(file, { force: true });
  }
}

// ── at the start of a server
// ─────────────────────────────────────────────────────────────────────────────────────

/** The parts of a machine that this module needs. */
export type Encloser = { layout: Layout; namespaces: Namespaces; sandbox: Sandbox };

/** Puts a PostgreSQL server into namespaces of its own: PID, IPC, mounts. */
export async function encloseServer(machine: Encloser, view: View): Promise<Enclosure> {
  const { namespaces, sandbox } = machine;
  if (namespaces === 'none') return { within: [], mounts: null };
  if (sandbox.way === 'none') {
    return {
      within: ['unshare', ...(namespaces === 'as root' ? UNSHARE_AS_ROOT : UNSHARE_AS_USER), '--'],
      mounts: null,
    };
  }
  const proc = `proc ${NEW_ROOT}/proc proc nosuid,nodev,noexec 0 0`;
  const mounts = [
    ...sandbox.system,
    proc,
    tmpfs('/dev/shm', '1777', view.sharedMemoryBytes),
    ...(await entriesOf(machine, sandbox, view)),
    ...(view.instead ?? []).map(({ source, target }) =>
      entry(source, target, 'bind,ro,nosuid,nodev'),
    ),
  ];
  const within = [
    ...inMounts(unshareFlags(namespaces), sandbox.root),
    ...script(namespaces, enter('/old'), '/'),
  ];
  return { within, mounts: fstab(mounts) };
}

/**
 * Puts a program beside the servers into namespaces of its own: IPC and mounts, without /proc. It
 * keeps its pid, by which it is found.
 */
export async function encloseDaemon(
  machine: Encloser,
  cwd: string,
  view: Omit<View, 'sharedMemoryBytes'>,
): Promise<Enclosure> {
  const { namespaces, sandbox } = machine;
  if (namespaces === 'none' || sandbox.way === 'none') return { within: [], mounts: null };
  const proc = `/proc ${NEW_ROOT}/proc none rbind 0 0`;
  const mounts = [
    ...sandbox.system,
    proc,
    tmpfs('/dev/shm', '1777', MIB),
    ...(await entriesOf(machine, sandbox, view)),
  ];
  const user = namespaces === 'as user' ? ['--user', '--map-current-user', '--keep-caps'] : [];
  const within = [
    ...inMounts([...user, ...UNSHARE_MOUNTS], sandbox.root),
    ...script(namespaces, enter('/old /proc'), cwd),
  ];
  return { within, mounts: fstab(mounts) };
}

/** Opens a file that holds the mounts and has no name; the caller closes it. */
export async function openMounts(mounts: string): Promise<FileHandle> {
  const path = `/dev/shm/howdah-${randomBytes(8).toString('hex')}`;
  const file = await open(path, 'wx+', 0o600);
  try {
    await rm(path);
    await file.write(mounts, 0);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/**
 * The size of /dev/shm for parallel queries, whose memory the server's limit counts as well: half
 * of it, the kernel's own default.
 */
export function sharedMemoryBytes(size: Size): number {
  return (size === 'shared' ? 1 : size.memoryGbs) * 512 * MIB;
}

function unshareFlags(namespaces: Exclude<Namespaces, 'none'>): string[] {
  return namespaces === 'as root'
    ? [...UNSHARE_AS_ROOT, ...UNSHARE_MOUNTS]
    : [...UNSHARE_AS_USER, '--keep-caps', ...UNSHARE_MOUNTS];
}

/** The command that runs another one in a private mount namespace. */
function inMounts(flags: readonly string[], root: Root): [string, ...string[]] {
  if (root === 'mount') return ['unshare', ...flags, '--propagation=private', '--'];
  return [
    'unshare',
    ...flags,
    '--propagation=unchanged',
    '--',
    'sh',
    '-c',
    ROOT_AS_MOUNT,
    'howdah',
  ];
}

/** Field 5 of a line is the mount point (proc_pid_mountinfo(5)). */
async function findRoot(): Promise<Root> {
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n');
  return mounts.some((mount) => mount.split(' ')[4] === '/') ? 'mount' : 'directory';
}

/**
 * The script in a shell. A user's capabilities, which are those of its own namespace, end with it.
 */
function script(namespaces: Namespaces, text: string, cwd: string): string[] {
  const shell = ['sh', '-c', text, 'howdah', cwd];
  return namespaces === 'as root'
    ? shell
    : [
        ...shell,
        'setpriv',
        '--no-new-privs',
        '--inh-caps=-all',
        '--ambient-caps=-all',
        '--bounding-set=-all',
        '--',
      ];
}

async function entriesOf(
  { layout }: Encloser,
  { rootfs }: Sandbox & { way: 'mounts' },
  view: Omit<View, 'sharedMemoryBytes'>,
): Promise<string[]> {
  const { own, others, config } = view;
  const binds = [
    ...(await installationOf(view.program)).map((path) => bind(path, path, 'ro,nosuid,nodev')),
    ...(existsSync(layout.modules)
      ? [bind(layout.modules, layout.modules, 'ro,nosuid,nodev')]
      : []),
    bind(own, own, 'rw,nosuid,nodev,noexec'),
    ...(await linkedArchive(own, 'rw,nosuid,nodev,noexec')),
  ];
  for (const path of others)
    binds.push(
      bind(path, path, 'ro,nosuid,nodev,noexec'),
      ...(await linkedArchive(path, 'ro,nosuid,nodev,noexec')),
    );
  await makeMountPoints(rootfs, layout.root, [layout.root, ...binds.map(({ target }) => target)]);
  return [
    // Hides all services; their directories are made on it.
    tmpfs(layout.root, '0755', MIB),
    ...binds.map(({ source, target, options }) =>
      entry(source, target, `rbind,${options},X-mount.mkdir`),
    ),
    ...ACCOUNT_FILES.map((name) => {
      const own = join(config, name);
      const file = existsSync(own) ? own : join('/etc', name);
      return entry(file, join('/etc', name), 'bind,ro,nosuid,nodev');
    }),
  ];
}

type Bind = { source: string; target: string; options: string };
const bind = (source: string, target: string, options: string): Bind => ({
  source,
  target,
  options,
});

/** The directory of a program's installation; none: it is part of the system. */
async function installationOf(program: string): Promise<string[]> {
  const top = dirname(dirname(await realpath(program)));
  return top === '/' || isBelow(top, SYSTEM) ? [] : [top];
}

/**
 * The archive of a service where that is a link of the operator's, at the place that the link
 * names.
 */
async function linkedArchive(service: string, options: string): Promise<Bind[]> {
  const link = join(service, 'archive');
  const isLink = (await lstat(link).catch(noneOf('ENOENT', 'ENOTDIR')))?.isSymbolicLink() === true;
  if (!isLink) return [];
  // A disk that is not there must not keep a server from starting.
  const source = await realpath(link).catch(noneOf('ENOENT', 'ENOTDIR', 'ELOOP', 'EIO'));
  if (source === null || !statSync(source).isDirectory()) return [];
  return [bind(source, resolve(service, await readlink(link)), options)];
}

/** Makes the mount points that cannot be made in the namespace, where the root is read-only. */
async function makeMountPoints(
  rootfs: string,
  root: string,
  targets: readonly string[],
): Promise<void> {
  for (const target of targets) {
    if (target !== root && isBelow(target, [root])) continue;
    if (isBelow(target, [...EMPTY, ...SYSTEM])) continue;
    await ensureDirectories(rootfs, target, 0o755);
  }
}

function isBelow(path: string, directories: readonly string[]): boolean {
  return directories.some((directory) => path === directory || path.startsWith(`${directory}/`));
}

function fstab(entries: readonly string[]): string {
  return `${entries.join('\n')}\n`;
}
