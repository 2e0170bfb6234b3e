/** Between two rounds: whether all standbys of each cluster follow. */
import type { Round, Rounds } from '../../../../lib/rounds.ts';
import { memberKey } from '../../host/layout.ts';
import { memberName } from '../../postgres/replication.ts';
import type { Topology } from '../context.ts';
import { followersOf } from '../replication-state.ts';

/** PostgreSQL sends no notice when a standby ceases to follow. */
export function watchFollowers(topology: Topology, rounds: Rounds): Round {
  const round = rounds.every('followers', () => askFollowers(topology));
  round.startLater();
  return round;
}

/** Asks each primary whether all its standbys follow. */
async function askFollowers({ machine, monitor, clusters, changed }: Topology): Promise<void> {
  for (const { spec } of clusters.values()) {
    if (spec === null || spec.ha === null || spec.power === 'paused') continue;
    const primary = machine.layout.primaryOf(spec.id);
    const followers = await followersOf(monitor, memberKey(spec.id, primary));
    const isLate = spec.ha.servers.some(
      ({ n }) => n !== primary && followers?.streaming.includes(memberName(n)) !== true,
    );
    if (isLate) changed(spec.id);
  }
}
