/** Observes all instances of a cluster, and its gateway. */
import {
  memberName,
  nextQuorum,
  nextSlotsAhead,
  nextWaitedFor,
  quorumSetting,
  replicationConf,
  slotNames,
  slotsAheadOf,
  synchronisesSlots,
  waitedForOf,
  WAITS_FOR_NOBODY,
} from '../../../postgres/replication/replication-conf.ts';
import { FAILOVER_SLOTS_SINCE } from '../../../postgres/contents/slots-role.ts';
import { observeGateway } from '../../proxy/gateway.ts';
import { listenerFor } from '../context.ts';
import {
  hangs,
  type InstanceSeen,
  type ClusterSeen,
} from '../../../postgres/decisions/decide-ha.ts';
import type { Observation } from '../../../postgres/decisions/decide.ts';
import type { Found } from '../executor.ts';
import { gatewayPaths, watchGateway } from '../gateways.ts';
import { instanceNumbers } from '../instances.ts';
import { observeServer, type ObservedServer } from '../observe-server.ts';
import { followersOf, type Followers } from '../../../postgres/replication/replication-state.ts';
import { brokenOf, confOf, noteOnDisk, ownPartOf, writeReplication } from '../standbys.ts';
import { keyOf, portOf, type ClusterRound } from './round.ts';
import { findSuccessor } from './successor.ts';
import {
  areSlotsCurrent,
  isSettling,
  isWritable,
  withoutFlushed,
  type Replication,
} from '../../../postgres/replication/acknowledgement.ts';

export type ClusterObserved = {
  readonly found: ReadonlyMap<number, Found>;
  /** The desired replication settings of each instance. */
  readonly conf: ReadonlyMap<number, string>;
  readonly seen: ClusterSeen;
  /** Whether clients can write. */
  readonly isWritable: boolean;
};

type Numbered = ObservedServer & { readonly n: number };

/** Observes a cluster, with the primary that is recorded. */
export async function observeCluster(round: ClusterRound): Promise<ClusterObserved> {
  const { topology, spec, ha } = round;
  const servers = await observeServers(round);
  const primary = servers.find(({ n }) => n === ha.primary);
  if (primary === undefined)
    throw new Error(
      `service ${spec.id}: the recorded primary, member ${ha.primary}, does not exist`,
    );
  const followers = await followersOf(topology.monitor, keyOf(round, ha.primary));
  const replication = await observeReplication(round, primary, followers);
  const conf = await desiredConf(round, servers, primary, { followers, replication });
  await writeWithoutStep(round, primary, { conf, followers, replication });
  const instances = await Promise.all(
    servers.map((server) => observeInstance(round, server, { conf, followers, replication })),
  );
  const own = instances.find(({ n }) => n === ha.primary);
  const rules = rulesFor(primary, own, replication.others.length === 0);
  const gateway = await observeGateway(
    gatewayPaths(topology, spec.id),
    listenerFor(topology, spec),
  );
  if (gateway.running) await watchGateway(topology, spec.id);
  const isPrimaryDead = own !== undefined && (own.server === null || hangs(own));
  const mayBeSucceeded =
    isPrimaryDead && rules.provisioned && spec.power === 'running' && replication.others.length > 0;
  return {
    found: new Map(servers.map(({ n, found }) => [n, found])),
    conf,
    seen: {
      primary: rules,
      instances,
      gateway,
      slotsCurrent: areSlotsCurrent(instances, replication.others, followers),
      settling: isSettling(replication),
      rehearsed: followers?.rehearsed === true,
      successor: mayBeSucceeded ? await findSuccessor(round) : null,
    },
    isWritable: isWritable(own, gateway, followers, replication),
  };
}

/** All instances that exist or are desired. */
async function observeServers({ topology, spec, ha }: ClusterRound): Promise<Numbered[]> {
  const desired = ha.servers.map(({ n }) => n);
  const existing = await instanceNumbers(topology.machine, spec.id);
  const numbers = [...new Set([...desired, ...existing])];
  return Promise.all(
    numbers.map(async (n) => ({ n, ...(await observeServer(topology, spec, n)) })),
  );
}

async function observeReplication(
  { cluster, ha }: ClusterRound,
  primary: Numbered,
  followers: Followers | null,
): Promise<Replication> {
  const desired = ha.servers.map(({ n }) => n);
  const others = desired.filter((n) => n !== ha.primary);
  const streaming = desired.filter((n) => followers?.streaming.includes(memberName(n)) === true);
  const current = waitedForOf(await confOf(primary.found.paths));
  if (followers === null) return { others, streaming, current, next: current };
  const quorum = nextQuorum(ha.sync, others, streaming, current.now);
  const next = withoutFlushed(
    cluster,
    primary.found.key,
    nextWaitedFor(quorum, current),
    followers,
  );
  return { others, streaming, current, next };
}

/**
 * The desired replication settings. While the primary does not answer, the files keep the settings
 * that depend on its answer.
 */
async function desiredConf(
  { ha }: ClusterRound,
  servers: readonly Numbered[],
  primary: Numbered,
  { followers, replication }: Pick<View, 'followers' | 'replication'>,
): Promise<Map<number, string>> {
  const { next, streaming } = replication;
  const upstream = { paths: primary.found.paths, port: portOf(ha, ha.primary) };
  const confs = servers.map(async ({ n, found }): Promise<[number, string]> => {
    const name = memberName(n);
    const before = await confOf(found.paths);
    const hasSlots = (found.installation?.major ?? 0) >= FAILOVER_SLOTS_SINCE;
    if (n !== ha.primary) {
      const withSlots = hasSlots && (followers?.hasSlotsRole ?? synchronisesSlots(before));
      return [n, replicationConf(name, { ...upstream, withSlots }, WAITS_FOR_NOBODY)];
    }
    const ahead =
      followers === null
        ? slotsAheadOf(before)
        : nextSlotsAhead(next.now, streaming, followers.slots);
    return [n, replicationConf(name, null, next, { slotsAhead: hasSlots ? ahead : null })];
  });
  return new Map(await Promise.all(confs));
}

/**
 * Makes the changes of the primary's file that are no step, since they come and go with standbys:
 * earlier quorums, which the server does not read, and the slots that consumers wait for.
 */
async function writeWithoutStep(
  { topology, ha }: ClusterRound,
  { found }: Numbered,
  { followers, replication, conf }: View,
): Promise<void> {
  const { current, next } = replication;
  if (quorumSetting(next.now) !== quorumSetting(current.now)) return;
  const desired = conf.get(ha.primary) ?? '';
  const ahead = slotsAheadOf(desired).join();
  const hasOtherSlots =
    followers !== null &&
    followers.slotsAhead !== null &&
    (slotNames(followers.slotsAhead).join() !== ahead ||
      slotsAheadOf(await confOf(found.paths)).join() !== ahead);
  if (!hasOtherSlots && next.before.length >= current.before.length) return;
  await writeReplication(topology.executor, found, desired);
  // The next round sees a primary that is dying.
  if (hasOtherSlots)
    await topology.monitor.query(found.key, 'select pg_reload_conf()').catch(() => []);
}

type View = {
  readonly conf: ReadonlyMap<number, string>;
  readonly followers: Followers | null;
  readonly replication: Replication;
};

async function observeInstance(
  { topology, spec, ha }: ClusterRound,
  observed: Numbered,
  { conf, followers, replication }: View,
): Promise<InstanceSeen> {
  const { standbys } = topology;
  const { n, found, seen } = observed;
  await noteOnDisk(standbys, found);
  const isPrimary = n === ha.primary;
  // A reload may have been interrupted after the file was written.
  const isRead = followers === null || followers.setting === quorumSetting(replication.current.now);
  return {
    n,
    ...ownPartOf(observed, spec),
    filesCurrent:
      seen.filesCurrent && (await confOf(found.paths)) === conf.get(n) && (!isPrimary || isRead),
    streaming: replication.streaming.includes(n),
    broken: isPrimary
      ? null
      : await brokenOf(
          standbys,
          found,
          followers === null ||
            followers.receiving.includes(memberName(n)) ||
            seen.server?.phase !== 'ready',
          followers?.lost.includes(memberName(n)) === true,
        ),
  };
}

/** The primary as the rules for a single server see it: its size and place are the cluster's. */
function rulesFor(
  { seen }: Numbered,
  own: InstanceSeen | undefined,
  isAlone: boolean,
): Observation {
  return {
    ...seen,
    filesCurrent: own?.filesCurrent === true,
    // With others beside it, how long it may be silent is not the rules' for one server to say.
    silentMs: isAlone ? seen.silentMs : null,
    server: seen.server === null ? null : { ...seen.server, start: 'current', placed: true },
  };
}
