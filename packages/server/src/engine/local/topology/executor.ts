/** The tools of the modules that perform the steps of the engine, and their state between steps. */
import pLimit, { type LimitFunction } from 'p-limit';
import type { CertificateIssuer } from '../../../lib/tls.ts';
import type { Rounds } from '../../../lib/rounds.ts';
import type { RepositorySource } from '../../../repository/source.ts';
import type { Sized } from '../host/cpu-bound.ts';
import { flushOf } from '../host/flush.ts';
import type { InstancePaths } from '../host/layout.ts';
import { enforceLimits } from '../host/limits.ts';
import type { Machine } from '../host/machine-record.ts';
import type { Relays } from '../relays/relays.ts';
import type { RelayPlan, RelayView } from '../relays/messages.ts';
import type { Owner } from '../host/users.ts';
import type { Marker } from '../host/marker.ts';
import { NotYet } from '../../not-yet.ts';
import type { Listener } from '../network/listener.ts';
import type { ConfigFiles } from '../postgres/files.ts';
import type { Installation } from '../postgres/installations.ts';
import type { Heartbeat } from '../../postgres/sessions/monitor.ts';
import type { ServerMonitor } from '../postgres/server-monitor.ts';
import type { Precloned } from '../postgres/precloned.ts';
import type { Server } from '../postgres/server.ts';
import type { Templates } from '../postgres/templates.ts';
import type { PoolerPlan, Poolers } from '../proxy/pooler.ts';

/**
 * Forks that are cloned, or begin to recover, at the same time: all of them flush the disk on which
 * their parents' transactions wait as well. Ten forks on btrfs are ready after 9 s by twos and
 * after 10 s side by side; the slowest transaction of their parent takes 4 s and 7 s (bench
 * fork-load, two cores).
 */
const FORKS_AT_A_TIME = 2;
/**
 * Data directories that are copied byte by byte at the same time. Each may take hours, and a place
 * of the reconciler.
 */
const COPIES_AT_A_TIME = 6;
/** Dumps into another major version at the same time; each has two servers. */
const CONVERSIONS_AT_A_TIME = 2;

/** The observed state of a server on this machine, and its desired files. */
export type Found = {
  /** The name by which the monitor and the limits know it. */
  key: string;
  paths: InstancePaths;
  listen: { address: string; port: number };
  listener: Listener;
  heartbeat: Heartbeat;
  marker: Marker | null;
  server: Server | null;
  installation: Installation | null;
  /** The desired files. */
  files: ConfigFiles | null;
  /** The files of a server that runs as another user, for one that is about to get it. */
  filesAs: ((owner: Owner | null) => ConfigFiles) | null;
  /**
   * The files once it is provisioned; they differ from the current ones only for a fork that is not
   * provisioned yet.
   */
  filesOnceProvisioned: ConfigFiles | null;
  /** The service's pooler, if it connects to this server. */
  pooler: PoolerPlan | null;
  /** The desired relay; null: clients reach the server without one. */
  relay: RelayPlan | null;
  /** The relay that is open. */
  relayView: RelayView | null;
};

/** The parts of the engine that an executor uses. */
export type Tools = {
  readonly machine: Machine;
  readonly templates: Templates;
  readonly precloned: Precloned;
  readonly monitor: ServerMonitor;
  readonly issuer: CertificateIssuer;
  readonly poolers: Poolers;
  readonly rounds: Rounds;
  readonly repositories: RepositorySource;
  readonly relays: Relays;
};

/** The tools, and the state that is kept between steps. */
export type Executor = Tools & {
  /** Servers whose limits are being enforced; a restart enforces them as it connects. */
  readonly limiting: Map<string, Promise<void>>;
  /**
   * Servers whose limits could not be enforced: a step of the next round does it. A restart
   * enforces them as it connects.
   */
  readonly unlimited: Set<string>;
  readonly forkLimit: LimitFunction;
  readonly copies: { running: number };
  readonly conversions: { running: number };
  readonly flush: () => Promise<void>;
  /**
   * Flushes of instances that are not provisioned, by their root; one that another control plane
   * made has none.
   */
  readonly flushing: Map<string, Promise<void>>;
  /** The pids of servers whose contents are known to be current, by their keys. */
  readonly current: Map<string, number>;
};

export function createExecutor(tools: Tools): Executor {
  return {
    ...tools,
    limiting: new Map(),
    unlimited: new Set(),
    forkLimit: pLimit(FORKS_AT_A_TIME),
    copies: { running: 0 },
    conversions: { running: 0 },
    flush: flushOf(tools.machine.layout.services),
    flushing: new Map(),
    current: new Map(),
  };
}

/**
 * Makes one data directory from another.
 *
 * @throws NotYet when that is a copy and too many are being made: waiting would keep a place of
 *   the reconciler
 */
export async function copying<T>(
  { machine, copies }: Pick<Executor, 'machine' | 'copies'>,
  work: () => Promise<T>,
): Promise<T> {
  if (machine.cloneMethod !== 'copy') return work();
  if (copies.running >= COPIES_AT_A_TIME)
    throw new NotYet(`waits until one of ${COPIES_AT_A_TIME} others has been copied`);
  copies.running += 1;
  return work().finally(() => {
    copies.running -= 1;
  });
}

/**
 * Makes data of another major version.
 *
 * @throws NotYet when too many are being made: a tenant can make each last
 */
export async function converting<T>(
  { conversions }: Pick<Executor, 'conversions'>,
  work: () => Promise<T>,
): Promise<T> {
  if (conversions.running >= CONVERSIONS_AT_A_TIME)
    throw new NotYet(`waits until one of ${CONVERSIONS_AT_A_TIME} others has its data`);
  conversions.running += 1;
  return work().finally(() => {
    conversions.running -= 1;
  });
}

/**
 * Enforces the limits of a server that has just started, in the background: joining a group takes a
 * third of a start.
 */
export function limitSoon(
  { machine, limiting, unlimited }: Executor,
  key: string,
  sized: Sized,
  { postmaster }: Server,
): void {
  const done = enforceLimits(machine, key, sized, postmaster.pid)
    .then(
      () => void unlimited.delete(key),
      () => void unlimited.add(key),
    )
    .finally(() => limiting.delete(key));
  limiting.set(key, done);
}
