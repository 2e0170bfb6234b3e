/**
 * The base backup of a copy: pg_basebackup as the user of the copy. It takes as long as the service
 * is large, so it runs beside the rounds, and outlives the control plane.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  argumentsOf,
  childrenOf,
  findProcess,
  readEnd,
  readOrNull,
  signal,
  waitUntilGone,
} from '../../../lib/processes.ts';
import { makeCloneable, removeTree } from '../host/clone.ts';
import { launchDetached } from '../host/detached-program.ts';
import type { InstancePaths } from '../host/layout.ts';
import { enforceLimits } from '../host/limits.ts';
import type { Machine } from '../host/machine-record.ts';
import { currentBoot } from '../host/marker.ts';
import type { Owner } from '../host/users.ts';
import { chown, rm } from '../host/root-files.ts';
import { encloseServer } from '../host/sandbox.ts';
import { presentOf, type Installation } from '../postgres/installations.ts';
import type { CopySpec } from './copy-directory.ts';
import type { BackupSeen } from '../../postgres/decisions/decide-copy.ts';

const PROGRAM = 'pg_basebackup';
/** The last line of one that has succeeded. */
const COMPLETED = `${PROGRAM}: base backup completed`;
/** A busy machine starts and ends a process late. */
const STARTED_WITHIN_MS = 60_000;
const ENDED_WITHIN_MS = 60_000;
const REASON_MAX_CHARACTERS = 400;
const MIB = 1024 ** 2;

/** Where it writes, until it is complete. */
export const unfinishedOf = ({ data }: InstancePaths): string => `${data}.new`;

const filesOf = ({ root }: InstancePaths): { pidFile: string; log: string } => ({
  pidFile: join(root, 'base-backup.pid'),
  log: join(root, 'base-backup.log'),
});

/**
 * A pg_basebackup for servers of this major version. Those of newer ones read them as well; npm's
 * PostgreSQL has none.
 */
export function findBaseBackup(
  installations: readonly Installation[],
  major: number,
): string | null {
  const found = presentOf(installations)
    .filter((one) => one.major >= major && existsSync(join(one.bin, PROGRAM)))
    .toSorted((a, b) => a.major - b.major);
  return found[0] === undefined ? null : join(found[0].bin, PROGRAM);
}

/** The command that brings it. */
export const missingBaseBackup = (major: number | null): string =>
  `${PROGRAM} of PostgreSQL ${major ?? 'of that version'} or newer is needed: ` +
  `apt-get install postgresql-${major ?? 17}, then restart Howdah`;

/** Begins a base backup, of which nothing runs. @param source as libpq reads it */
export async function beginBackup(
  machine: Machine,
  spec: Pick<CopySpec, 'id' | 'size'>,
  paths: InstancePaths,
  owner: Owner | null,
  { program, source }: { program: string; source: string },
): Promise<void> {
  const { pidFile, log } = filesOf(paths);
  const target = unfinishedOf(paths);
  await removeTree(target, machine.cloneMethod);
  await makeCloneable(target, machine.cloneMethod);
  if (owner !== null) await chown(target, owner.uid, owner.gid);
  await rm(pidFile, { force: true });
  const enclosure = await encloseServer(machine, {
    program,
    own: paths.root,
    others: [],
    config: paths.config,
    sharedMemoryBytes: MIB,
  });
  await launchDetached({
    command: [
      program,
      '--dbname',
      source,
      '--no-password',
      '--pgdata',
      target,
      '--wal-method=stream',
      '--checkpoint=fast',
      '--no-manifest',
      '--progress',
      '--verbose',
      // All of it is flushed before it has its name.
      '--no-sync',
    ],
    owner,
    cwd: '/',
    pidFile,
    log,
    within: [],
    enclosure,
  });
  const endMs = performance.now() + STARTED_WITHIN_MS;
  let pid = 0;
  while (pid === 0 && performance.now() < endMs) {
    await sleep(5);
    pid = await pidIn(pidFile);
  }
  // A process that has ended already needs no limits.
  if (pid !== 0) await enforceLimits(machine, spec.id, spec, pid).catch(() => undefined);
}

const pidIn = async (path: string): Promise<number> => Number((await readOrNull(path)) ?? '0');

export async function observeBackup(paths: InstancePaths): Promise<BackupSeen> {
  const { pidFile, log } = filesOf(paths);
  const pid = await pidIn(pidFile);
  if (pid === 0) return { kind: 'none' };
  const isRunning = (await findOwn(paths, pid)) !== null;
  return judgeBackup(isRunning, (await readEnd(log)) ?? '');
}

/** @param text the end of its output, which has texts of the server that is copied */
export function judgeBackup(isRunning: boolean, text: string): BackupSeen {
  const [done = 0, total = 0] = progressIn(text);
  if (isRunning) return { kind: 'running', doneBytes: done, totalBytes: total };
  const lines = text.split(/[\r\n]+/).filter((line) => line.trim() !== '');
  if (lines.at(-1) === COMPLETED) return { kind: 'done', bytes: done };
  const last = lines.findLast((line) => / error: |FATAL: /.test(line)) ?? 'it was interrupted';
  const reason = last.replace(`${PROGRAM}: error: `, '').slice(0, REASON_MAX_CHARACTERS);
  return { kind: 'failed', reason };
}

/** The program prints "12345/67890 kB (18%), 0/1 tablespace" each second. */
function progressIn(text: string): number[] {
  const found = [...text.matchAll(/(\d+)\/(\d+) kB \(/g)].at(-1) ?? [];
  return found.slice(1).map((kilobytes) => Number(kilobytes) * 1024);
}

/** Whether the process is the one that was launched: its pid may belong to another by now. */
async function findOwn(paths: InstancePaths, pid: number) {
  const isOwn = (await argumentsOf(pid)).includes(unfinishedOf(paths));
  return isOwn ? findProcess(pid) : null;
}

/** Ends a base backup, with all of its processes. @throws Error when one does not end */
export async function endBackup(paths: InstancePaths): Promise<void> {
  const { pidFile } = filesOf(paths);
  const top = await findOwn(paths, await pidIn(pidFile));
  if (top !== null) {
    const all = [top.pid, ...(await descendantsOf(top.pid))];
    const found = await Promise.all(all.map(findProcess));
    for (const pid of all) signal(pid, 'SIGKILL');
    for (const process of found)
      if (process !== null && !(await waitUntilGone(process, ENDED_WITHIN_MS)))
        throw new Error(`the base backup (pid ${process.pid}) does not end`);
  }
  await rm(pidFile, { force: true });
}

async function descendantsOf(pid: number): Promise<number[]> {
  const children = await childrenOf(pid);
  return [...children, ...(await Promise.all(children.map(descendantsOf))).flat()];
}

/** Whether what is there may be incomplete: the machine went down before it was flushed. */
export const isOfOtherBoot = async (madeIn: string): Promise<boolean> =>
  madeIn !== (await currentBoot());

/** Removes the notes of a base backup that is in use. */
export async function forgetBackup(paths: InstancePaths): Promise<void> {
  for (const path of Object.values(filesOf(paths))) await rm(path, { force: true });
}
