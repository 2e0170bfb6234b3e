/** The state of a service with replicas, as users see it. */
import type { Member, ReplicaState, Warning } from '@howdah/contract';
import { memberKey } from '../../host/layout.ts';
import type { Machine } from '../../host/machine-record.ts';
import type { Monitored } from '../../../postgres/sessions/monitor.ts';
import { memberName } from '../../../postgres/replication/replication-conf.ts';
import { findServer } from '../../postgres/server.ts';
import type { Topology } from '../context.ts';
import { instanceNumbers } from '../instances.ts';
import { followerRows } from '../../../postgres/replication/replication-state.ts';
import { slotsOnAll, syncedSlots } from '../../../postgres/replication/failover-slots.ts';

/** The state of each instance but the primary, as the primary reports it. */
export async function replicaStates(
  { machine, monitor, clusters }: Topology,
  id: string,
): Promise<ReplicaState[]> {
  const ha = clusters.get(id)?.spec?.ha ?? null;
  if (ha === null) return [];
  const primary = machine.layout.primaryOf(id);
  const rows = await followerRows(monitor, memberKey(id, primary));
  const streaming = rows.filter(({ state }) => state === 'streaming');
  return ha.servers
    .filter(({ n }) => n !== primary)
    .map(({ n }) => {
      const row = streaming.find(({ name }) => name === memberName(n));
      const detail = row === undefined ? 'does not follow the primary' : 'follows the primary';
      const lag =
        row === undefined
          ? { lag_bytes: null, lag_seconds: null }
          : {
              lag_bytes: row.flushed_bytes,
              lag_seconds: row.flushed_bytes === 0 ? 0 : (row.seconds ?? 0),
            };
      return { node: n, serving: false, ...lag, detail };
    });
}

/** The problems of the replicas of a service. */
export async function replicaWarnings(topology: Topology, id: string): Promise<Warning[]> {
  const ha = topology.clusters.get(id)?.spec?.ha ?? null;
  const missing = (await replicaStates(topology, id)).filter(
    ({ lag_bytes: bytes }) => bytes === null,
  );
  if (ha === null || missing.length === 0) return [];
  const following = ha.servers.length - 1 - missing.length;
  const wait = following < ha.sync ? `; writes wait until ${ha.sync} of its replicas follow` : '';
  const who = missing.map(({ node }) => `member ${node}`).join(' and ');
  const message =
    `${who} of its ${ha.servers.length - 1} replicas cannot take over at this moment${wait}` +
    '; this is being repaired';
  return [{ code: 'REPLICA_MISSING', message }];
}

/** The servers of a service by number, as the primary and their processes say now. */
export async function serverStates(
  machine: Machine,
  monitor: Monitored,
  id: string,
): Promise<Member[]> {
  const primary = machine.layout.primaryOf(id);
  const [numbers, followers] = await Promise.all([
    instanceNumbers(machine, id),
    followerRows(monitor, memberKey(id, primary)),
  ]);
  const states = numbers.map(async (node): Promise<Member> => {
    const runs = (await findServer(machine.layout.member(id, node))) !== null;
    const nothing = { synchronous: false, lag_bytes: null, lag_seconds: null };
    if (node === primary)
      return { node, role: 'primary', state: runs ? 'running' : 'stopped', ...nothing };
    const follower = followers.find(({ name }) => name === memberName(node));
    if (!runs || follower === undefined)
      return { node, role: 'standby', state: runs ? 'disconnected' : 'stopped', ...nothing };
    const { state, synchronous, written_bytes, seconds } = follower;
    return {
      node,
      role: 'standby',
      state: state === 'streaming' ? 'streaming' : 'catching_up',
      synchronous,
      lag_bytes: written_bytes,
      lag_seconds: seconds,
    };
  });
  return (await Promise.all(states)).toSorted((a, b) => a.node - b.node);
}

/** The logical slots of users that each standby has; none, if one of them does not answer. */
export async function synchronisedSlots(
  { machine, monitor, clusters }: Topology,
  id: string,
): Promise<string[]> {
  const servers = clusters.get(id)?.spec?.ha?.servers ?? [];
  const primary = machine.layout.primaryOf(id);
  const standbys = servers.filter(({ n }) => n !== primary).map(({ n }) => memberKey(id, n));
  const asked = Promise.all(standbys.map((key) => syncedSlots(monitor, key)));
  return slotsOnAll(await asked.catch(() => []));
}
