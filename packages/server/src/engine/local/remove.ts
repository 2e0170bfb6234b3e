/** Removes a service: one step at a time, until nothing of it is left. */
import type { BeginStep, Seen, Verdict } from '../engine.ts';
import { forgetBackups, provisioningForksOf } from './backup/keeper.ts';
import { removeLinkedArchives } from './backup/aside-data.ts';
import { hasCopy } from './copy/copy-directory.ts';
import { removeCopy } from './copy/target.ts';
import { discard, removeTree } from './host/clone.ts';
import { instancePaths, memberKey, partsOfKey } from './host/layout.ts';
import { groupIds, removeLimits } from './host/limits.ts';
import { readMarker, type Marker } from './host/marker.ts';
import { NotYet } from '../not-yet.ts';
import { forgetQuota } from './host/quota.ts';
import { releaseUser } from './host/users.ts';
import type { Local } from './local.ts';
import { findServer } from './postgres/server.ts';
import { stopPooler } from './proxy/pooler.ts';
import { removeFetched } from './repository/spool.ts';
import { endCluster } from './topology/cluster/converge.ts';
import { instanceNumbers } from './topology/instances.ts';
import { forgetSet, dropSlotsOfSet } from './topology/read-replicas/converge.ts';
import { stopInstance } from './topology/start-stop.ts';

const GONE: Seen = { reachable: false, present: false, provisioned: false };
const PRESENT: Seen = { ...GONE, present: true };
/** Something is left. */
const AGAIN: Extract<Verdict, { outcome: 'again' }> = {
  did: null,
  detail: null,
  seen: PRESENT,
  outcome: 'again',
  waitMs: 0,
};

/** Makes one step towards removing a service; settled when nothing is left. */
export async function removeService(
  local: Local,
  id: string,
  parent: string | null,
  begin: BeginStep,
): Promise<Verdict> {
  const { machine, topology, keeper } = local;
  forgetSet(topology, id);
  local.notices.close(id);
  const paths = machine.layout.service(id);
  const marker = await readMarker(paths);
  const children = await provisioningForksOf(keeper, id);
  if (children.length > 0)
    return {
      ...AGAIN,
      detail: `waiting for ${children.join(', ')}, being forked from it`,
      waitMs: 500,
    };
  if (hasCopy(machine, id)) {
    await begin('remove copy', PRESENT);
    await removeCopy(topology, id);
    return { ...AGAIN, did: 'remove copy' };
  }
  await forgetService(local, id);
  const waking = await whyNotYet(topology.executor.relays.close(id));
  if (waking !== null) return { ...AGAIN, detail: waking, waitMs: 100 };
  // Clients of an open relay can have a server started.
  const server = await findServer(paths);
  await stopPooler(topology.poolers, paths);
  if (await endCluster(topology, id)) return AGAIN;
  if (server !== null) {
    await begin('stop PostgreSQL', PRESENT);
    // Immediately rather than at once: the server gives its shared memory back.
    await stopInstance(topology.executor, id, paths, server, 'immediate');
    return { ...AGAIN, did: 'stop PostgreSQL' };
  }
  if (parent !== null) {
    const busy = await whyNotYet(dropSlotsOfSet(topology, id, parent));
    if (busy !== null) return { ...AGAIN, detail: busy, waitMs: 100 };
  }
  await removeTree(instancePaths(`${paths.root}.new`).root, machine.cloneMethod);
  await removeFetched(machine, id);
  if (marker?.id === id) {
    await begin('remove data', PRESENT);
    await removeData(local, id, marker);
    return { ...AGAIN, did: 'remove data', seen: GONE };
  }
  const groups = await groupIds(machine.limits);
  for (const key of groups.filter((group) => partsOfKey(group).id === id)) {
    machine.shares.remove(key);
    await removeLimits(machine.limits, key);
  }
  return { did: null, detail: null, seen: GONE, outcome: 'settled' };
}

/** Why work has to wait; null: it is done. */
async function whyNotYet(work: Promise<unknown>): Promise<string | null> {
  try {
    await work;
    return null;
  } catch (error) {
    if (error instanceof NotYet) return error.message;
    throw error;
  }
}

/** Forgets what is kept in memory of a service and of its servers. */
async function forgetService(local: Local, id: string): Promise<void> {
  const { machine, topology, keeper, quotas, meter, glances, outOfMemory } = local;
  const numbers = await instanceNumbers(machine, id);
  for (const n of numbers) {
    const key = memberKey(id, n);
    topology.monitor.forget(key);
    glances.delete(key);
    outOfMemory.forget(key);
  }
  forgetBackups(keeper, id);
  forgetQuota(quotas, id, numbers);
  for (const n of numbers) {
    const { data, config } = machine.layout.member(id, n);
    meter.forget(data);
    topology.certificates.forget(config);
  }
}

async function removeData({ machine }: Local, id: string, { uid }: Marker): Promise<void> {
  const paths = machine.layout.service(id);
  await removeLinkedArchives(machine.layout, id);
  await discard(machine, id, paths.root);
  if (machine.isolation.isolated && uid !== null)
    await releaseUser(machine.isolation.users, uid, paths.root);
}
