/**
 * What all topologies of the local engine share: the tools, the policies, and what is known of each
 * cluster and of each read replica set.
 */
import type { FailoverPolicy, ReadLagLimit } from '../../../config.ts';
import type { createCertificateCheck } from '../../../lib/tls.ts';
import type { ClusterRecords } from '../../records.ts';
import type { DaemonWatch } from '../host/daemon.ts';
import type { Machine } from '../host/machine-record.ts';
import { listenerOf, type Listener } from '../network/listener.ts';
import type { Heartbeat } from '../../postgres/sessions/monitor.ts';
import type { ServerMonitor } from '../postgres/server-monitor.ts';
import type { Templates } from '../postgres/templates.ts';
import type { Poolers } from '../proxy/pooler.ts';
import type { Cluster } from './cluster/cluster.ts';
import type { Executor } from './executor.ts';
import type { SetState } from './read-replicas/set-state.ts';
import type { Standbys } from './standbys.ts';
import type { PlacedSpec } from '../../postgres/decisions/placed-spec.ts';

/** The tools and policies; they do not change while the control plane runs. */
type Means = {
  readonly machine: Machine;
  readonly executor: Executor;
  readonly monitor: ServerMonitor;
  readonly poolers: Poolers;
  readonly templates: Templates;
  readonly certificates: ReturnType<typeof createCertificateCheck>;
  /** The address that servers listen on outside of VPCs. */
  readonly listenAddress: string;
  /** How the servers of clusters and sets are watched; a single server has the slow heartbeat. */
  readonly heartbeat: Heartbeat;
  readonly failover: FailoverPolicy;
  readonly readLagLimit: ReadLagLimit;
  readonly records: ClusterRecords;
  /** Whether the installation has a repository for backups off this machine, at this moment. */
  readonly offMachine: () => boolean;
  /** Puts the rules for outgoing connections in place that copies need at this moment. */
  readonly renewEgress: () => Promise<void>;
  /** Called when something watched changed by itself, with the service's id. */
  readonly changed: (id: string) => void;
};

/** The means, and what is known between two rounds. */
export type Topology = Means & {
  /** The watched gateways. A round watches a running gateway that is not watched yet. */
  readonly gateways: DaemonWatch;
  /** The state of standbys and nodes between two rounds, by the keys of their servers. */
  readonly standbys: Standbys;
  /** By the id of the service; see {@link Cluster} for what a restart loses. */
  readonly clusters: Map<string, Cluster>;
  /** By the id of the set; see {@link SetState} for what a restart loses. */
  readonly sets: Map<string, SetState>;
};

/** Where a service listens, and who may connect. */
export function listenerFor(
  { machine, listenAddress }: Pick<Topology, 'machine' | 'listenAddress'>,
  spec: Pick<PlacedSpec, 'vpc' | 'allowedNetworks'>,
): Listener {
  return listenerOf(spec, listenAddress, machine.networkPrefix);
}
