/** What this machine can do, found out by trying; `howdah doctor` prints it, the local engine works by it. */
import { createHash } from 'node:crypto';
import { lstat, mkdir, readlink, realpath, rm, stat, symlink } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { probeCloneMethod, type CloneMethod } from './clone.ts';
import { findInstallations, type Found } from './installations.ts';
import { createLayout, type Layout } from './layout.ts';
import { probeLimits, type Limits } from './limits.ts';
import { isErrno } from './processes.ts';
import { run } from './run.ts';

export type Owner = { name: string; uid: number; gid: number };

/** A PID namespace per server, the certain fence: when its first process is gone, so are all others. */
export type Namespaces = 'as root' | 'as user' | 'none';

export type Machine = {
  layout: Layout;
  /** The user that servers run as when the control plane is root; null: its own user. */
  owner: Owner | null;
  /** Operating system users that may be our superuser over the Unix socket. */
  controlUsers: readonly string[];
  namespaces: Namespaces;
  cloneMethod: CloneMethod;
  limits: Limits;
  installations: Found;
};

/** The system user that servers run as; made at the first start as root. */
const SERVER_USER = 'howdah';

/** Looks the machine over and makes the data directory ready. */
export async function prepareMachine(home: string): Promise<Machine> {
  const owner = process.getuid?.() === 0 ? await serverUser() : null;
  await mkdir(home, { recursive: true, mode: 0o755 });
  const root = await dataDirectory(home, owner);
  await mkdir(root, { recursive: true, mode: 0o711 });
  const layout = createLayout(await realpath(root));
  for (const directory of [layout.services, layout.templates, layout.trash]) {
    await mkdir(directory, { recursive: true, mode: 0o711 });
  }
  const [namespaces, cloneMethod, limits, installations] = await Promise.all([
    probeNamespaces(),
    probeCloneMethod(layout.templates),
    probeLimits(await groupName(layout.root)),
    findInstallations(layout.installations),
  ]);
  const controlUsers = [...new Set([userInfo().username, owner?.name ?? userInfo().username])];
  return { layout, owner, controlUsers, namespaces, cloneMethod, limits, installations };
}

/** A cgroup of this data directory's own: another one in a chroot may have the same path. */
async function groupName(root: string): Promise<string> {
  const { dev, ino } = await stat(root, { bigint: true });
  return `howdah-${createHash('sha256').update(`${root} ${dev} ${ino}`).digest('hex').slice(0, 8)}`;
}

/** Whether servers can be put into PID namespaces. */
export async function probeNamespaces(): Promise<Namespaces> {
  const [args, result] = process.getuid?.() === 0 ? ([UNSHARE_AS_ROOT, 'as root'] as const) : ([UNSHARE_AS_USER, 'as user'] as const);
  try {
    await run('unshare', [...args, '--', 'true']);
    return result;
  } catch {
    return 'none'; // the kernel or a container forbids it; servers are then fenced by signals alone
  }
}

export const UNSHARE_AS_ROOT = ['--pid', '--fork', '--kill-child=SIGKILL'] as const;
export const UNSHARE_AS_USER = ['--user', '--map-current-user', ...UNSHARE_AS_ROOT] as const;

/** PostgreSQL refuses to run as root: a system user of our own, else one that is there. */
async function serverUser(): Promise<Owner> {
  const candidates = [SERVER_USER, 'postgres', 'nobody'];
  const known = await lookUp(SERVER_USER);
  if (known !== null) return known;
  try {
    await run('useradd', [
      '--system',
      '--user-group',
      '--no-create-home',
      '--home-dir',
      '/nonexistent',
      '--shell',
      '/usr/sbin/nologin',
      SERVER_USER,
    ]);
  } catch (error) {
    process.emitWarning(`no system user ${SERVER_USER} could be made, servers run as another: ${String(error)}`);
  }
  for (const candidate of candidates) {
    const found = await lookUp(candidate);
    if (found !== null) return found;
  }
  throw new Error(
    `PostgreSQL cannot run as root, and this machine has none of the users ${candidates.join(', ')}: useradd --system ${SERVER_USER}`,
  );
}

async function lookUp(name: string): Promise<Owner | null> {
  try {
    const [uid, gid] = (await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])])).map(Number);
    return uid === undefined || gid === undefined ? null : { name, uid, gid };
  } catch {
    return null; // no such user
  }
}

/**
 * `HOME/data`; where the user that servers run as cannot get there (root's home is closed to others), a directory
 * below /var/lib/howdah to which `HOME/data` is then a link.
 */
async function dataDirectory(home: string, owner: Owner | null): Promise<string> {
  const inside = join(home, 'data');
  const link = await readlink(inside).catch((error: unknown) => {
    if (isErrno(error, 'ENOENT', 'EINVAL')) return null;
    throw error;
  });
  if (link !== null) return link;
  if (owner === null || (await exists(inside)) || (await isOpenToOthers(home))) return inside;
  const outside = join('/var/lib/howdah', createHash('sha256').update(home).digest('hex').slice(0, 8));
  await mkdir(outside, { recursive: true, mode: 0o711 });
  await rm(inside, { force: true });
  await symlink(outside, inside);
  return outside;
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => null)) !== null;
}

async function isOpenToOthers(path: string): Promise<boolean> {
  const { mode } = await stat(path);
  return (mode & 0o001) !== 0 && (path === '/' || isOpenToOthers(dirname(path)));
}
