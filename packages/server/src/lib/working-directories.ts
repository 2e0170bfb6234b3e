/**
 * The working directories of processes, by which servers and the programs beside them are found.
 *
 * Linux shows them to root with CAP_SYS_PTRACE, which a container takes away, and to the user of
 * the process. Without it, a program that runs as that user is asked
 * (docs/decisions/0081-containers.md).
 */
import { readlinkSync, statSync } from 'node:fs';
import { idsOf, isErrno } from './processes.ts';
import { run } from './run.ts';

/** A directory, and its place on the machine: in a chroot the path may name another one. */
export type Place = { path: string; dev: number; ino: number };

/** The kernel does not show it to us; `workingPlacesOf` finds it. */
export const HIDDEN = Symbol('hidden');

function placeOf(pid: number): Place | typeof HIDDEN | null {
  try {
    const [root, cwd] = [readlinkSync(`/proc/${pid}/root`), readlinkSync(`/proc/${pid}/cwd`)];
    const { dev, ino } = statSync(`/proc/${pid}/cwd`);
    const path = root !== '/' && cwd.startsWith(`${root}/`) ? cwd.slice(root.length) : cwd;
    return { path, dev, ino };
  } catch (error) {
    // Only root can ask as another user.
    return isErrno(error, 'EACCES', 'EPERM') && process.getuid?.() === 0 ? HIDDEN : null;
  }
}

/** The path, if it names the same directory for us; else null. */
function pathHere({ path, dev, ino }: Place): string | null {
  try {
    const here = statSync(path);
    return here.dev === dev && here.ino === ino ? path : null;
  } catch {
    return null;
  }
}

/**
 * The working directory of a process, if the directory has the same name for the process and for
 * us; null: the process is gone, another user's, or in a chroot where the name means another
 * directory.
 */
export function workingDirectoryOf(pid: number): string | typeof HIDDEN | null {
  const place = placeOf(pid);
  return place === null || place === HIDDEN ? place : pathHere(place);
}

/** The same for many processes, also for those where it is hidden from us. */
export async function workingDirectoriesOf(
  pids: readonly number[],
): Promise<ReadonlyMap<number, string>> {
  const found = [...(await workingPlacesOf(pids))].flatMap(([pid, place]) => {
    const path = pathHere(place);
    return path === null ? [] : [[pid, path] as const];
  });
  return new Map(found);
}

/** Where processes work; those that are gone are not in the result. */
export async function workingPlacesOf(
  pids: readonly number[],
): Promise<ReadonlyMap<number, Place>> {
  const places = new Map<number, Place>();
  const hidden = new Map<string, Asked>();
  for (const pid of pids) {
    const place = placeOf(pid);
    if (place !== null && place !== HIDDEN) places.set(pid, place);
    const ids = place === HIDDEN ? idsOf(pid) : null;
    // No program of ours runs as root.
    if (ids === null || ids.uid === 0) continue;
    const user = `${ids.uid} ${ids.gid}`;
    hidden.set(user, { ...ids, pids: [...(hidden.get(user)?.pids ?? []), pid] });
  }
  const asked = await Promise.all([...hidden.values()].map(askAs));
  return new Map([...places, ...asked.flat()]);
}

/** A user of the operating system, and processes of this user. */
type Asked = { uid: number; gid: number; pids: readonly number[] };

/** Prints for each process its pid, the numbers of the directory and its path, each with a NUL. */
const ASK = `for pid; do
  place=$(stat -L -c '%d %i' "/proc/$pid/cwd" 2>/dev/null) && path=$(readlink "/proc/$pid/cwd") &&
    printf '%s\\0%s\\0%s\\0' "$pid" "$place" "$path"
done; :`;

/** Asks for the places of the processes of a user, as this user. */
async function askAs({ uid, gid, pids }: Asked): Promise<(readonly [number, Place])[]> {
  const user = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--'];
  const words = [...user, 'sh', '-c', ASK, 'sh', ...pids.map(String)];
  const said = await run('setpriv', words).catch(() => '');
  return [...said.matchAll(/(\d+)\0(\d+) (\d+)\0([^\0]*)\0/g)].map(
    ([, pid, dev, ino, path = '']) => [Number(pid), { path, dev: Number(dev), ino: Number(ino) }],
  );
}
