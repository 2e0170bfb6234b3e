/** Finds out what this machine can do, by trying it. `howdah doctor` changes nothing. */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readlink, realpath, rm, stat, symlink } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { availableParallelism, freemem, totalmem } from 'node:os';
import type { Capacity, Finding } from '@howdah/contract';
import { probeCloneMethod } from './clone.ts';
import { findProgram } from './daemon.ts';
import { probeEgress, type EgressAbility } from './egress.ts';
import { findPgBackRest } from '../../../repository/pgbackrest.ts';
import type { Machine, Site } from './machine-record.ts';
import {
  type Owner,
  holdUser,
  makeRegistry,
  REGISTRY,
  whyNoUsers,
  type Isolation,
  type UidRange,
  type Users,
} from './users.ts';
import { attachImage, imagePaths } from './image.ts';
import { findInstallations } from '../postgres/installations.ts';
import { createLayout, type Layout } from './layout.ts';
import { measureDiskRate } from './disk-rate.ts';
import { diskOf, readReclaimable } from './groups.ts';
import { findLimits, probeLimits } from './limits.ts';
import { createShares } from './shares.ts';
import { probeNetworks } from '../network/networks.ts';
import {
  ownCapabilities,
  type Capability,
  type CapabilitySet,
} from '../../../lib/kernel-capabilities.ts';
import { exists, isErrno, readOrNull } from '../../../lib/processes.ts';
import { keepReserve } from './reserve.ts';
import { markerOf } from './marker.ts';
import { ensureDirectory } from './root-files.ts';
import { run } from '../../../lib/run.ts';
import { TUNING, type Tuning } from '../../../lib/tuning.ts';
import { ensureSystemUser, findSystemUser } from '../../../lib/system-users.ts';
import {
  prepareSandbox,
  UNSHARE_AS_ROOT,
  UNSHARE_AS_USER,
  type Namespaces,
  type Sandbox,
} from './sandbox.ts';
import { DEFAULT_UID_RANGE } from '../../../settings.ts';

/** The system user that servers run as; made at the first start as root. */
export const SERVER_USER = 'howdah';
/**
 * The one that gateways run as: it makes connections to servers, which no user of a service may.
 */
const GATEWAY_USER = 'howdah-gateway';
/** Users that take its place if it cannot be made. */
export const SERVER_USERS = [SERVER_USER, 'postgres', 'nobody'];

/** Finds out what the machine can do, and prepares the data directory. */
export async function prepareMachine(
  home: string,
  uidRange: UidRange = DEFAULT_UID_RANGE,
  tuning: Tuning = TUNING,
  boundsCpu = false,
): Promise<Machine> {
  const isRoot = process.getuid?.() === 0;
  const why = isRoot ? whyRootCannot(ownCapabilities()) : null;
  if (why !== null) throw new Error(why);
  const owner = isRoot ? await serverUser() : null;
  const data = await makeDataDirectory(home);
  await attachImage(imagePaths(data));
  await ensureDirectory(data, 0o711);
  const layout = createLayout(await realpath(data));
  // A disk that is full already gives the space that the rest of the start may need.
  const { did: reserve } = await keepReserve(layout.root, tuning.reserveMaxBytes);
  for (const directory of [
    layout.services,
    layout.templates,
    layout.precloned,
    layout.trash,
    layout.scratch,
    layout.spool,
    layout.copies,
  ]) {
    await ensureDirectory(directory, 0o711);
  }
  // A start that was interrupted leaves its probe.
  for (const entry of await readdir(layout.templates)) {
    if (entry.startsWith('.probe-'))
      await rm(join(layout.templates, entry), { recursive: true, force: true });
  }
  const group = await groupName(layout.root);
  const networkPrefix = `${group}-`;
  const [namespaces, cloneMethod, limits, installations, pgbouncer, pgbackrest, networks, egress] =
    await Promise.all([
      probeNamespaces(),
      probeCloneMethod(layout.templates),
      probeLimits(group, layout.root),
      findInstallations(layout, true),
      findProgram('pgbouncer'),
      findPgBackRest(tuning.repositoryTimeoutSeconds),
      probeNetworks(),
      probeEgress(),
    ]);
  const sandbox = await prepareSandbox(layout, namespaces, installations.usable);
  const isolation = await isolate(layout, namespaces, sandbox, uidRange);
  const capacity = tuning.capacity ?? (await measureCapacity());
  const diskRate = diskOf(limits) === null ? null : await measureDiskRate(layout);
  return {
    tuning,
    capacity,
    layout,
    owner,
    isolation,
    namespaces,
    sandbox,
    cloneMethod,
    hasMetadata: true,
    reserve,
    limits,
    shares: createShares(limits, diskRate, capacity.cpuMillis),
    boundsCpu,
    installations,
    pgbouncer,
    pgbackrest,
    networks,
    networkPrefix,
    egress,
  };
}

/** Gives services users of their own, if that can be had. */
async function isolate(
  layout: Layout,
  namespaces: Namespaces,
  sandbox: Sandbox,
  range: UidRange,
): Promise<Isolation> {
  const why = (await whyNotIsolated(namespaces, sandbox, range)) ?? makeRegistry(REGISTRY);
  if (why !== null) return { isolated: false, why };
  const gateway = await ensureSystemUser(GATEWAY_USER);
  if (gateway === null)
    return {
      isolated: false,
      why:
        `this machine has no user ${GATEWAY_USER} for gateways: ` +
        `useradd --system ${GATEWAY_USER}`,
    };
  const users: Users = { directory: REGISTRY, range };
  // No other installation on the machine may get the user of a service of ours.
  const services = (await readdir(layout.services)).map(layout.service);
  const copies = (await readdir(layout.copies)).map(layout.copy);
  for (const { root, marker: path } of [...services, ...copies]) {
    const marker = markerOf({ marker: path });
    if (marker?.uid != null && marker.userOf === null) holdUser(users, marker.uid, root);
  }
  return { isolated: true, users, gateway };
}

/** Why services cannot have users of their own here; null: they can. Changes nothing. */
export async function whyNotIsolated(
  namespaces: Namespaces,
  sandbox: Pick<Sandbox, 'way' | 'note'>,
  range: UidRange,
): Promise<string | null> {
  if (process.getuid?.() !== 0) return 'the control plane does not run as root';
  // Without, PostgreSQL would not find the name of the user.
  if (namespaces !== 'as root' || sandbox.way === 'none') return sandbox.note;
  return whyNoUsers(REGISTRY, range);
}

/**
 * In words, whether services are kept from each other below PostgreSQL, and what of that is missing
 * here.
 *
 * @param why what is in the way of users of their own; null: nothing is
 */
export function isolationNote(
  why: string | null,
  sandbox: Pick<Sandbox, 'way' | 'note'>,
  egress: EgressAbility,
): string {
  const users =
    why === null
      ? 'each service runs as an operating system user of its own: ' +
        'none can read the files of another, or signal its processes'
      : `all services run as one operating system user, which can read the files of all: ${why}`;
  const isNamed = sandbox.way === 'mounts' || why === sandbox.note;
  return [
    users,
    ...(isNamed ? [] : [sandbox.note]),
    ...(isEgressClosed(why, egress) ? [] : [egress.refused ? SHARED_USER : egress.note]),
  ].join('; ');
}
const SHARED_USER =
  'a server can connect to whatever this machine reaches: ' +
  'its user is none of those whose connections are refused';

/**
 * Whether servers are kept from beginning connections: that goes by their users, and takes some of
 * their own.
 */
export function isEgressClosed(why: string | null, egress: EgressAbility): boolean {
  return why === null && egress.refused;
}

/**
 * The installation on this machine; null: there is none, or only a data volume that is not mounted.
 * Changes nothing.
 */
export async function findSite(home: string): Promise<Site | null> {
  const data = await dataDirectory(home);
  if (!(await exists(join(data, 'services')))) return null;
  const layout = createLayout(await realpath(data));
  const group = await groupName(layout.root);
  return { layout, limits: await findLimits(group, layout.root), networkPrefix: `${group}-` };
}

/** A cgroup of this data directory's own: another one in a chroot may have the same path. */
export async function groupName(root: string): Promise<string> {
  const { dev, ino } = await stat(root, { bigint: true });
  return `howdah-${createHash('sha256').update(`${root} ${dev} ${ino}`).digest('hex').slice(0, 8)}`;
}

/** Whether servers can be put into PID namespaces. */
export async function probeNamespaces(): Promise<Namespaces> {
  const [args, result] =
    process.getuid?.() === 0
      ? ([UNSHARE_AS_ROOT, 'as root'] as const)
      : ([UNSHARE_AS_USER, 'as user'] as const);
  try {
    await run('unshare', [...args, '--', 'true']);
    return result;
  } catch {
    return 'none'; // the kernel or a container forbids it; servers are then fenced by signals alone
  }
}

/** PostgreSQL refuses to run as root: a system user of our own, else one that is there. */
async function serverUser(): Promise<Owner> {
  const found = (await ensureSystemUser(SERVER_USER)) ?? (await findSystemUser(...SERVER_USERS));
  if (found !== null) return found;
  throw new Error(
    'PostgreSQL cannot run as root, and this machine has none of the users ' +
      `${SERVER_USERS.join(', ')}: useradd --system ${SERVER_USER}`,
  );
}

/**
 * Where the data is, or will be: `HOME/data`; where the user that servers run as cannot get there
 * (root's home is closed to others), a directory below /var/lib/howdah to which `HOME/data` is then
 * a link. Changes nothing.
 */
export async function dataDirectory(home: string): Promise<string> {
  const inside = join(home, 'data');
  const link = await readlink(inside).catch((error: unknown) => {
    if (isErrno(error, 'ENOENT', 'EINVAL')) return null;
    throw error;
  });
  if (link !== null) return resolve(home, link);
  if (
    process.getuid?.() !== 0 ||
    (await exists(inside)) ||
    (await exists(imagePaths(inside).checked))
  )
    return inside;
  if (await isOpenToOthers(home)) return inside;
  return join(SHARED_DATA, createHash('sha256').update(home).digest('hex').slice(0, 8));
}

/** Where data is whose home is closed to others, of all installations on the machine. */
const SHARED_DATA = '/var/lib/howdah';

/**
 * Makes the parent of the data directory, and the link to it.
 *
 * @returns its path without links; it may not exist yet
 */
export async function makeDataDirectory(home: string): Promise<string> {
  await mkdir(home, { recursive: true, mode: 0o755 });
  const data = await dataDirectory(home);
  if (dirname(data) === SHARED_DATA) await ensureDirectory(SHARED_DATA, 0o711);
  else await mkdir(dirname(data), { recursive: true, mode: 0o711 });
  if (dirname(data) !== home && !(await exists(join(home, 'data'))))
    await symlink(data, join(home, 'data'));
  return join(await realpath(dirname(data)), basename(data));
}

/** Whether others get through a directory; one that is missing will be made so. */
async function isOpenToOthers(path: string): Promise<boolean> {
  const { mode } = await stat(path).catch((error: unknown) => {
    if (isErrno(error, 'ENOENT')) return { mode: 0o755 };
    throw error;
  });
  return (mode & 0o001) !== 0 && (path === '/' || isOpenToOthers(dirname(path)));
}

// The processors and the memory that servers on this machine can have.

/** A container may have less than its machine. */
export async function measureCapacity(): Promise<Capacity> {
  const { memoryBytes } = measureMemory();
  const cores = Math.min(availableParallelism(), (await coresOfContainer()) ?? Infinity);
  return { cpuMillis: Math.max(1, Math.round(cores * 1000)), memoryBytes };
}

/** The memory of this machine or its container, and how much of it is free. */
export function measureMemory(): { freeMemoryBytes: number; memoryBytes: number } {
  const constrained = process.constrainedMemory();
  const memoryBytes = constrained > 0 ? Math.min(totalmem(), constrained) : totalmem();
  // A container counts cached files as used: without them, it would be full after some hours.
  const availableBytes = process.availableMemory() + readReclaimable();
  return { freeMemoryBytes: Math.min(freemem(), memoryBytes, availableBytes), memoryBytes };
}

/**
 * The processor time that the cgroup of a container allows, in cores; null: it has no limit. Inside
 * of a container, its own group is the root of the hierarchy.
 */
async function coresOfContainer(): Promise<number | null> {
  const own = '/sys/fs/cgroup';
  const v2 = coresOf(...((await readOrNull(join(own, 'cpu.max'))) ?? '').trim().split(' '));
  if (v2 !== null) return v2;
  const v1 = join(own, 'cpu');
  const [quota, period] = await Promise.all(
    ['cpu.cfs_quota_us', 'cpu.cfs_period_us'].map((name) => readOrNull(join(v1, name))),
  );
  return coresOf(quota?.trim(), period?.trim());
}

/** @param quota microseconds of each `period`; `max` or -1: there is no limit */
export function coresOf(quota = '', period = ''): number | null {
  if (!/^[1-9][0-9]{0,15}$/.test(quota) || !/^[1-9][0-9]{0,15}$/.test(period)) return null;
  return Number(quota) / Number(period);
}

// The capabilities of root: those that Howdah cannot do without, and what the others are for.

/** Root changes owners, reads files of all users, and starts and ends their processes. */
const REQUIRED = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_KILL',
  'CAP_SETGID',
  'CAP_SETUID',
] as const satisfies readonly Capability[];

/** The others, and the effect of their absence in words. */
const USEFUL: readonly { name: Capability; without: string }[] = [
  {
    name: 'CAP_SYS_ADMIN',
    without:
      'no namespaces, so that all services run as one user, which can read all their files; ' +
      'no data volume',
  },
  {
    name: 'CAP_NET_ADMIN',
    without: 'no VPC that is a network of its own; services can open connections',
  },
  {
    name: 'CAP_SYS_PTRACE',
    without: 'the memory of a service is measured without shared pages',
  },
  { name: 'CAP_SETPCAP', without: 'programs keep a bounding set that is of no use to them' },
];

/** Why root cannot run Howdah here, and how it can; null: it can. */
export function whyRootCannot(held: CapabilitySet): string | null {
  const missing = REQUIRED.filter((name) => !held.has(name));
  return missing.length === 0
    ? null
    : `root has no ${missing.join(', ')} here, without which servers cannot run as users of ` +
        `their own: start the container with ${addingOf(missing)}, or start Howdah as a user`;
}

/** The capabilities that a container has taken from root, for `howdah doctor`. */
export function capabilitiesFinding(held: CapabilitySet): Finding {
  const what = 'capabilities';
  const why = whyRootCannot(held);
  if (why !== null) return { what, state: 'missing', found: 'root cannot run Howdah', remedy: why };
  const missing = USEFUL.filter(({ name }) => !held.has(name));
  if (missing.length === 0) return { what, state: 'ok', found: 'root has all that Howdah uses' };
  const found = missing.map(({ name, without }) => `${name} (${without})`).join('; ');
  const remedy = `in a container: docker run ${addingOf(missing.map(({ name }) => name))}`;
  return { what, state: 'note', found: `root has no ${found}`, remedy };
}

const addingOf = (names: readonly string[]): string =>
  names.map((name) => `--cap-add ${name.slice('CAP_'.length)}`).join(' ');
