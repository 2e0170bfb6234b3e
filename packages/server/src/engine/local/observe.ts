/** The state of running services, as users read it: warnings, logs, usage and replication. */
import type { ReplicaState, Warning } from '@howdah/contract';
import { isErrno } from '../../lib/processes.ts';
import { EngineUnavailable, type Observing, type Usage } from '../engine.ts';
import { backupWarnings, type Keeper } from './backup/keeper.ts';
import { memberKey } from './host/layout.ts';
import type { Machine } from './host/machine-record.ts';
import type { createOutOfMemory } from './host/out-of-memory.ts';
import { quotaWarnings, type Quotas } from './host/quota.ts';
import { measure, type Glance } from './host/usage.ts';
import { readLogs } from './postgres/logs.ts';
import type { Monitor } from './postgres/monitor.ts';
import { findServer } from './postgres/server.ts';
import { memberStates } from './topology/member-states.ts';
import { memberNumbers, type createMembers } from './topology/members.ts';
import type { createReplicaSets } from './topology/replica-sets.ts';

export type Observed = Readonly<{
  machine: Machine;
  monitor: Monitor;
  keeper: Keeper;
  quotas: Quotas;
  outOfMemory: ReturnType<typeof createOutOfMemory>;
  /** The last figures of each server, by its key: rates are differences. */
  glances: Map<string, Glance>;
  sets: ReturnType<typeof createReplicaSets>;
  clusters: ReturnType<typeof createMembers>;
  /** The server whose log is shown for a service. */
  firstNode: (id: string) => Promise<number>;
  readLagLimit: Observing['readLagLimit'];
}>;

export function createObserving(observed: Observed): Observing {
  const { machine, monitor, keeper, quotas, sets, clusters, firstNode } = observed;
  return {
    readLagLimit: observed.readLagLimit,
    usage: (id) => usageOf(observed, id),
    servers: (id) => memberStates(machine, monitor, id),
    replicas: (id) => replicasOf(observed, id),
    logs: async (id, node, query, signal) => {
      try {
        const { logs } = machine.layout.member(id, node ?? (await firstNode(id)));
        return await readLogs(logs, query, signal);
      } catch (error) {
        // Nothing was logged before there is a directory.
        if (isErrno(error, 'ENOENT')) return { entries: [], cursor: null };
        throw error;
      }
    },
    warnings: async (id) => [
      ...(await backupWarnings(keeper, id)),
      ...quotaWarnings(quotas, id),
      ...(await clusters.warnings(id)),
      ...sets.warnings(id),
      ...(await memoryWarnings(observed, id)),
    ],
  };
}

async function replicasOf({ sets, clusters }: Observed, id: string): Promise<ReplicaState[]> {
  return sets.states(id) ?? clusters.states(id);
}

async function usageOf(observed: Observed, id: string): Promise<Usage[]> {
  const { machine, monitor, glances } = observed;
  const first = machine.layout.primaryOf(id);
  const numbers = (await memberNumbers(machine, id)).toSorted(
    (a, b) => Number(b === first) - Number(a === first) || a - b,
  );
  const lags = new Map(
    (await replicasOf(observed, id)).map(({ node, lag_bytes: bytes, lag_seconds: seconds }) => [
      node,
      { bytes, seconds },
    ]),
  );
  const used: Usage[] = [];
  for (const n of numbers) {
    const [paths, key] = [machine.layout.member(id, n), memberKey(id, n)];
    const server = await findServer(paths);
    if (server === null || !monitor.isConnected(key)) continue;
    const before = glances.get(key) ?? null;
    const { usage, glance } = await measure(paths, key, server.postmaster, monitor, before);
    glances.set(key, glance);
    const { bytes, seconds } = lags.get(n) ?? { bytes: null, seconds: null };
    used.push({
      ...usage,
      node: n,
      lag: bytes === null || seconds === null ? null : { bytes, seconds },
    });
  }
  if (used.length === 0) throw new EngineUnavailable('the server is not running');
  return used;
}

/** One warning for a service, no matter which of its servers reached the limit. */
async function memoryWarnings({ machine, outOfMemory }: Observed, id: string): Promise<Warning[]> {
  const numbers = await memberNumbers(machine, id);
  const found = await Promise.all(numbers.map((n) => outOfMemory.warning(memberKey(id, n))));
  return found.filter((warning) => warning !== null).slice(0, 1);
}
