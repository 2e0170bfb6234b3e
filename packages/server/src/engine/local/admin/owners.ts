/**
 * The owners of files, sockets and processes, for the integrity check: those of a service must
 * belong to its user, and be closed to others.
 */
import { lstatSync, readdirSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { instancePaths, type InstancePaths, type Layout } from '../host/layout.ts';
import { markerOf } from '../host/marker.ts';
import { allPids, findProcess, isErrno, readOrNull, uidOf } from '../../../lib/processes.ts';

/** The wrong owners and modes of a service with a user of its own. */
export type Misowned = { id: string; what: string };

export async function findMisowned(layout: Layout): Promise<Misowned[]> {
  if (process.getuid?.() !== 0) return [];
  const services = (await readdir(layout.services)).flatMap((id) => {
    const uid = markerOf(layout.service(id))?.uid ?? null;
    return uid === null ? [] : [{ id, uid, paths: layout.service(id) }];
  });
  const files = await Promise.all(
    services.map(async ({ id, uid, paths }) =>
      (await misownedFiles(paths, uid)).map((what) => ({ id, what })),
    ),
  );
  return [...files.flat(), ...(await strayProcesses(layout, services))];
}

async function misownedFiles({ root }: InstancePaths, uid: number): Promise<string[]> {
  const found: string[] = [];
  // HAProxy's, which is of a user of its own.
  const gateway = join(root, 'haproxy');
  const gatewayUid = lstatSync(gateway, { throwIfNoEntry: false })?.uid ?? 0;
  const visit = async (path: string): Promise<void> => {
    const info = lstatSync(path, { throwIfNoEntry: false });
    if (info === undefined) return; // it has just been removed
    const owners =
      path === gateway || path.startsWith(`${gateway}/`) ? [0, uid, gatewayUid] : [0, uid];
    const shown = relative(root, path) || '.';
    if (!owners.includes(info.uid))
      found.push(`${shown} belongs to user ${info.uid} instead of ${uid}`);
    else if (!info.isSymbolicLink() && isOpen(info, uid))
      found.push(`${shown} is open to others (mode ${(info.mode & 0o7777).toString(8)})`);
    if (!info.isDirectory()) return;
    await nextTurn();
    for (const entry of entriesOf(path)) await visit(join(path, entry));
  };
  await visit(root);
  return found;
}

/** The directory of the service protects files of root: no other user may write them. */
function isOpen(
  { mode, uid: owner, gid }: { mode: number; uid: number; gid: number },
  uid: number,
): boolean {
  const ofOthers = gid === uid || gid === 0 ? 0o007 : 0o077;
  return (mode & ofOthers & (owner === 0 ? 0o022 : 0o777)) !== 0;
}

function entriesOf(path: string): string[] {
  try {
    return readdirSync(path);
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return [];
    throw error;
  }
}

/** Processes of a service's user that nothing of it has started. */
async function strayProcesses(
  layout: Layout,
  services: readonly { id: string; uid: number }[],
): Promise<Misowned[]> {
  const begun = new Set((await Promise.all(services.map(({ id }) => pidsOf(layout, id)))).flat());
  const isOurs = async (pid: number): Promise<boolean> => {
    if (begun.has(pid)) return true;
    const parent = (await findProcess(pid))?.parentPid ?? 0;
    return parent > 1 && isOurs(parent);
  };
  const found: Misowned[] = [];
  for (const pid of await allPids()) {
    const uid = uidOf(pid);
    const service = services.find((one) => one.uid === uid);
    if (service === undefined || (await isOurs(pid)) || (await findProcess(pid)) === null) continue;
    found.push({
      id: service.id,
      what: `process ${pid} runs as its user ${uid} and is none of its own`,
    });
  }
  return found;
}

/** The processes that were launched for a service. */
async function pidsOf(layout: Layout, id: string): Promise<number[]> {
  const numbers = await readdir(join(layout.service(id).root, 'members')).catch(() => []);
  const files = [
    layout.service(id).pidFile,
    layout.service(id).pooler.pidFile,
    layout.gateway(id).pidFile,
    instancePaths(join(layout.scratch, id)).pidFile,
    ...numbers.map((n) => layout.member(id, Number(n)).pidFile),
  ];
  return (await Promise.all(files.map(readOrNull)))
    .map((text) => Number(text ?? '0'))
    .filter((pid) => pid !== 0);
}
