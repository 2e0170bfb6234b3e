/** A primary and a standby that are made by hand, with the settings of a service. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import {
  cloneRunning,
  writeOwned,
} from '../../packages/server/src/engine/local/backup/running-clone.ts';
import { removeTree } from '../../packages/server/src/engine/local/host/clone.ts';
import {
  connectBare,
  makeBare,
  removeBare,
  startBare,
  type BareKit,
  type BareServer,
} from './bare.ts';
import { atEnd } from './cleanup.ts';
import { stopwatch, type Sample } from './measure.ts';

export type Pair = {
  primary: BareServer;
  standby: BareServer;
  sample: Sample;
  forget: () => Promise<void>;
};

/** How a standby follows, as pg_stat_replication has it. */
type SyncState = 'async' | 'quorum' | 'sync';

/**
 * Makes a pair that follows.
 *
 * @param state sync: the primary waits for the standby before it acknowledges a write
 */
export async function startPair(kit: BareKit, state: 'async' | 'sync'): Promise<Pair> {
  const watch = stopwatch();
  const primary = await makeBare(kit, 'ours');
  await startBare(kit, primary);
  watch.lap('primary');
  const standby = await makeBare(kit, 'ours');
  const forget = atEnd(async () => {
    await removeBare(kit, primary);
    await removeBare(kit, standby);
  });
  // The standby does not begin with its own clone of the template.
  await removeTree(standby.paths.data, kit.machine.cloneMethod);
  const begun = performance.now();
  await cloneRunning(kit.machine, kit.machine.owner, primary.paths, standby.paths.data);
  await writeOwned(kit.machine.owner, join(standby.paths.data, 'standby.signal'), '');
  const follow = `primary_conninfo=host=${primary.paths.socket} port=${primary.port} user=howdah`;
  await startBare(kit, standby, ['-c', follow, '-c', 'wal_retrieve_retry_interval=10ms']);
  const admin = await connectBare(primary);
  if (state === 'sync') {
    await admin.query("alter system set synchronous_standby_names = '*'");
    await admin.query('select pg_reload_conf()');
  }
  while (!(await follows(admin, state))) await sleep(1);
  const sample = watch.sample();
  sample.parts['standby'] = performance.now() - begun;
  admin.connection.stream.destroy();
  return { primary, standby, sample, forget };
}

/** Whether a standby follows a primary in this way. */
export async function follows(client: Client, state: SyncState): Promise<boolean> {
  const { rows } = await client.query('select from pg_stat_replication where sync_state = $1', [
    state,
  ]);
  return rows.length > 0;
}
