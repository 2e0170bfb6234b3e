/**
 * Users of the operating system for services. Where the control plane is root, each service has one
 * of its own, a number without an entry in /etc/passwd: its server, its pooler and its files belong
 * to it (docs/decisions/0023-users.md).
 *
 * The marker of a service is the truth about its user. The registry, one symbolic link per number
 * that points to the directory of the service, keeps two installations on one machine apart; it is
 * rebuilt from the markers at each start.
 */
import { randomInt } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { readdir, rename, rm, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { userInfo } from 'node:os';
import { messageOf } from '@howdah/contract/thrown';
import type { InstancePaths } from './layout.ts';
import { markerOf } from './marker.ts';
import { allPids, isErrno, uidOf } from '../../../lib/processes.ts';

/** First and last user that services can have. */
export type UidRange = readonly [number, number];

/** Where all installations of the machine record their users. */
export const REGISTRY = '/var/lib/howdah/users';

/** The name of a service's user in the /etc/passwd that its own server sees. */
export const SERVICE_USER = 'howdah-service';

/** Whether each service has a user of its own, or why not, in words. */
export type Isolation =
  | { isolated: true; users: Users; gateway: Owner }
  | { isolated: false; why: string };

/** The user of a service, by its number. */
export function serviceOwner(uid: number): Owner {
  return { name: SERVICE_USER, uid, gid: uid };
}

/**
 * The user of an instance, by its marker; null: our own user, where the control plane is not root.
 */
export function ownerOf(machine: { owner: Owner | null }, paths: InstancePaths): Owner | null {
  if (machine.owner === null) return null;
  const uid = markerOf(paths)?.uid ?? null;
  return uid === null ? machine.owner : serviceOwner(uid);
}

/**
 * The user of a gateway. It is not the user of a service, but in the group of its service, whose
 * sockets it uses.
 */
export function gatewayOwnerOf(
  machine: { owner: Owner | null; isolation: Isolation },
  paths: InstancePaths,
): Owner | null {
  const owner = ownerOf(machine, paths);
  if (owner === null || owner.name !== SERVICE_USER || !machine.isolation.isolated) return owner;
  return { ...machine.isolation.gateway, gid: owner.gid };
}

/** Which users may connect with which of our roles to a server that runs as this user. */
export function configUsersOf(owner: Owner | null, gateway: Owner | null = null): ConfigUsers {
  return { control: userInfo().username, owner, gateway };
}

/** A link that is younger is left alone: its directory may be about to be made. */
const YOUNG_MS = 600_000;
/** Most numbers are free: this many are tried before all are read. */
const GUESSES = 8;

/**
 * The register of the users of services on this machine: its directory, and the numbers that it
 * gives.
 */
export type Users = { readonly directory: string; readonly range: UidRange };

function entryOf({ directory }: Users, uid: number): string {
  return join(directory, String(uid));
}

/** The directory of the service that has a user; null: no service has it. */
function holderOf(users: Users, uid: number): string | null {
  try {
    return readlinkSync(entryOf(users, uid));
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'EINVAL')) return null;
    throw error;
  }
}

/**
 * Records that a service has a user.
 *
 * @returns false if another service has it, or the range does not include it
 */
export function holdUser(users: Users, uid: number, root: string): boolean {
  const [first, last] = users.range;
  if (uid < first || uid > last) return false;
  const holder = holderOf(users, uid);
  if (holder !== null) return holder === root;
  return takeUser(users, uid, root) || holderOf(users, uid) === root;
}

/** @returns false if a service has the user already */
function takeUser(users: Users, uid: number, root: string): boolean {
  try {
    symlinkSync(root, entryOf(users, uid));
    return true;
  } catch (error) {
    if (isErrno(error, 'EEXIST')) return false;
    throw error;
  }
}

/**
 * Takes a free user for the service with this directory, which must exist.
 *
 * @throws Error when all are taken
 */
export async function allocateUser(users: Users, root: string): Promise<Owner> {
  const [first, last] = users.range;
  const known = accounts();
  for (let guess = 0; guess < GUESSES; guess++) {
    const uid = randomInt(first, last + 1);
    if (!known.has(uid) && takeUser(users, uid, root)) return serviceOwner(uid);
  }
  for (const attempt of ['taken', 'reclaimed'] as const) {
    if (attempt === 'reclaimed') await reclaimUsers(users);
    const taken = new Set((await readdir(users.directory)).map(Number));
    for (let uid = first; uid <= last; uid++)
      if (!known.has(uid) && !taken.has(uid) && takeUser(users, uid, root))
        return serviceOwner(uid);
  }
  throw new Error(
    `all ${last - first + 1} operating system users of HOWDAH_UID_RANGE ${first}-${last} ` +
      'belong to services; widen the range and restart Howdah, or delete services',
  );
}

/** A service takes over the user that its files were made for ahead. */
export async function moveUser(users: Users, uid: number, root: string): Promise<void> {
  const unfinished = join(users.directory, `.${uid}-${randomInt(2 ** 32)}`);
  await symlink(root, unfinished);
  await rename(unfinished, entryOf(users, uid));
}

/** Gives back the user of a service that is gone, or that no process ever ran as. */
export async function releaseUser(users: Users, uid: number, root: string): Promise<void> {
  if (holderOf(users, uid) === root && !(await runningUids()).has(uid))
    await rm(entryOf(users, uid), { force: true });
}

/** Whether the service that a link points to is gone, or has another user by now. */
function isStale(users: Users, uid: number, running: ReadonlySet<number>): boolean {
  const root = holderOf(users, uid);
  const made = lstatSync(entryOf(users, uid), { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
  if (root === null || running.has(uid) || Date.now() - made < YOUNG_MS) return false;
  if (!existsSync(root) && !existsSync(`${root}.new`)) return true;
  const marker = markerOf({ marker: join(root, 'howdah.json') });
  return marker !== null && marker.uid !== uid;
}

/** Gives back the users of services that are gone, of all installations. */
export async function reclaimUsers(users: Users): Promise<void> {
  const running = await runningUids();
  for (const entry of await readdir(users.directory)) {
    if (/^[0-9]+$/.test(entry) && isStale(users, Number(entry), running))
      await rm(entryOf(users, Number(entry)), { force: true });
  }
}

/** The users as whom anything runs on this machine. */
async function runningUids(): Promise<Set<number>> {
  const uids = (await allPids()).map(uidOf);
  return new Set(uids.filter((uid) => uid !== null));
}

/** The users that /etc/passwd has. */
function accounts(): Set<number> {
  const lines = readFileSync('/etc/passwd', 'utf8').split('\n');
  return new Set(lines.map((line) => Number(line.split(':')[2] ?? '-1')));
}

/**
 * Why services cannot have users of their own, as far as can be seen without making the registry;
 * null: they can. Changes nothing.
 */
export function whyNoUsers(directory: string, [first, last]: UidRange): string | null {
  const mapped = readFileSync('/proc/self/uid_map', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number))
    .some(([from = 0, , count = 0]) => from <= first && last < from + count);
  if (!mapped)
    return (
      `this container has no users ${first} to ${last}: ` +
      'set HOWDAH_UID_RANGE to numbers that it has (/proc/self/uid_map lists them)'
    );
  try {
    accessSync(nearestDirectory(directory), constants.W_OK);
    return null;
  } catch (error) {
    return unwritable(directory, error);
  }
}

const nearestDirectory = (path: string): string =>
  existsSync(path) ? path : nearestDirectory(dirname(path));
const unwritable = (directory: string, error: unknown): string =>
  `the register of users in ${directory} cannot be written: ` + messageOf(error);

/** Makes the registry. @returns why it cannot be written; null: it can */
export function makeRegistry(directory: string): string | null {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o755 });
    const probe = join(directory, `.probe-${process.pid}`);
    rmSync(probe, { force: true });
    symlinkSync('probe', probe);
    rmSync(probe);
    return null;
  } catch (error) {
    // Existing entries can be read; a full disk must not prevent a start.
    if (isErrno(error, 'ENOSPC', 'EDQUOT')) return null;
    return unwritable(directory, error);
  }
}

/**
 * /etc/passwd and /etc/group as a service's processes see them: PostgreSQL asks for the names of
 * those who connect.
 */
export function accountFiles(
  owner: Owner,
  gateway: Owner | null,
): { passwd: string; group: string } {
  const users = [
    { name: 'root', uid: 0, gid: 0 },
    { name: SERVICE_USER, uid: owner.uid, gid: owner.gid },
    ...(gateway === null ? [] : [gateway]),
    { name: 'nobody', uid: 65534, gid: 65534 },
  ];
  const groups = [...users.slice(0, 2), { name: 'nogroup', gid: 65534 }];
  return {
    passwd: users
      .map(({ name, uid, gid }) => `${name}:x:${uid}:${gid}::/nonexistent:/usr/sbin/nologin\n`)
      .join(''),
    group: groups.map(({ name, gid }) => `${name}:x:${gid}:\n`).join(''),
  };
}

// Users of the operating system, as the files and processes of services have them.

export type Owner = { name: string; uid: number; gid: number };

/** Which users may connect with which of our roles. */
export type ConfigUsers = {
  /** The control plane's own user. */
  control: string;
  /** The user that the server itself runs as; null: the control plane's. */
  owner: Owner | null;
  /** The user of gateways, if it is not the user of the service. */
  gateway: Owner | null;
};
