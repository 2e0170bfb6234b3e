/** The state of the servers of a service, as users see it. */
import type { Member } from '@howdah/contract';
import { memberKey } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { memberNumbers } from './members.ts';
import type { Monitor } from '../postgres/monitor.ts';
import { memberName } from '../postgres/replication.ts';
import { findServer } from '../postgres/server.ts';

type Follower = {
  name: string;
  state: string;
  synchronous: boolean;
  lag_bytes: number | null;
  lag_seconds: number | null;
};

/** The servers of a service by number, as the primary and their processes say now. */
export async function memberStates(
  machine: Machine,
  monitor: Monitor,
  id: string,
): Promise<Member[]> {
  const primary = machine.layout.primaryOf(id);
  const [numbers, followers] = await Promise.all([
    memberNumbers(machine, id),
    followersOf(monitor, memberKey(id, primary)),
  ]);
  const states = numbers.map(async (node): Promise<Member> => {
    const runs = (await findServer(machine.layout.member(id, node))) !== null;
    const nothing = { synchronous: false, lag_bytes: null, lag_seconds: null };
    if (node === primary)
      return { node, role: 'primary', state: runs ? 'running' : 'stopped', ...nothing };
    const follower = followers.find(({ name }) => name === memberName(node));
    if (!runs || follower === undefined)
      return { node, role: 'standby', state: runs ? 'disconnected' : 'stopped', ...nothing };
    const { state, synchronous, lag_bytes, lag_seconds } = follower;
    return {
      node,
      role: 'standby',
      state: state === 'streaming' ? 'streaming' : 'catching_up',
      synchronous,
      lag_bytes,
      lag_seconds,
    };
  });
  return (await Promise.all(states)).toSorted((a, b) => a.node - b.node);
}

/** The standbys of a server; none if it does not answer. */
async function followersOf(monitor: Monitor, key: string): Promise<Follower[]> {
  if (!monitor.isConnected(key)) return [];
  return monitor
    .query<Follower>(
      key,
      `select application_name as name, state, sync_state in ('sync', 'quorum') as synchronous,
              pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::float8 as lag_bytes,
              extract(epoch from replay_lag)::float8 as lag_seconds
       from pg_stat_replication`,
    )
    .catch(() => []); // it is dying, or no longer a primary: the next round sees it
}
