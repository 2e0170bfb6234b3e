/** The state of running services, as users read it: warnings, logs, usage and replication. */
import type { ReplicaState, Warning } from '@howdah/contract';
import { isErrno } from '../../lib/processes.ts';
import { EngineUnavailable, type Observing, type Usage } from '../engine.ts';
import { backupWarnings } from './backup/keeper.ts';
import { memberKey } from './host/layout.ts';
import { quotaWarnings } from './host/quota.ts';
import { measure } from './host/usage.ts';
import { readLogs } from '../postgres/logs.ts';
import type { Local } from './local.ts';
import { offMachine, type OffMachine } from './repository/state.ts';
import { findServer } from './postgres/server.ts';
import {
  replicaStates,
  replicaWarnings,
  serverStates,
  synchronisedSlots,
} from './topology/cluster/states.ts';
import type { Topology } from './topology/context.ts';
import { firstNode, instanceNumbers } from './topology/instances.ts';
import { versionWarnings } from './topology/minor-versions.ts';
import { nodeStates, setsOf, setWarnings } from './topology/read-replicas/observe.ts';

export function createObserving(local: Local): Observing {
  const { machine, topology, keeper, quotas, minorVersions } = local;
  return {
    readLagLimit: topology.readLagLimit,
    usage: (id) => usageOf(local, id),
    servers: (id) => serverStates(machine, topology.monitor, id),
    synchronisedSlots: (id) => synchronisedSlots(topology, id),
    replicas: (id) => replicasOf(topology, id),
    logs: async (id, node, query, signal) => {
      try {
        const { logs } = machine.layout.member(id, node ?? (await firstNode(machine, id)));
        return await readLogs(logs, query, signal);
      } catch (error) {
        // Nothing was logged before there is a directory.
        if (isErrno(error, 'ENOENT')) return { entries: [], cursor: null };
        throw error;
      }
    },
    warnings: async (id) => [
      ...(await backupWarnings(keeper, id)),
      ...(await repositoryWarnings(local, id)),
      ...quotaWarnings(quotas, id),
      ...(await replicaWarnings(topology, id)),
      ...setWarnings(topology, id),
      ...(await memoryWarnings(local, id)),
      ...(await versionWarnings(minorVersions, id, setsOf(topology, id))),
    ],
  };
}

/** A repository may be away for a moment; later a lost disk would lose more than it should. */
const BACKLOG_PATIENCE_MS = 300_000;

/** A warning for each repository that lacks WAL of a service for some minutes, or for good. */
async function repositoryWarnings({ machine, topology }: Local, id: string): Promise<Warning[]> {
  const listed = await topology.executor.repositories.list();
  const found = await Promise.all(
    listed.map(async ({ id: repositoryId, name }): Promise<Warning[]> => {
      const state = await offMachine({ machine }, id, repositoryId);
      if (state === null) return [];
      const unverified = unverifiedWarnings(name, id, state);
      const problem = lackOf(state);
      if (problem === null) return unverified;
      return [...unverified, { code: 'REPOSITORY', message: `the repository ${name} ${problem}` }];
    }),
  );
  return found.flat();
}

/** The lack of a repository, after its name; null: it lacks nothing that matters. */
function lackOf({ backlog, gaps, problem }: OffMachine): string | null {
  const gap = gaps.at(-1);
  const { oldestMs, bytes } = backlog;
  const isLate = oldestMs !== null && Date.now() - oldestMs >= BACKLOG_PATIENCE_MS;
  const why = problem ?? 'it does not keep up';
  if (gap?.beforeMs === null)
    return (
      `has a gap: nothing after ${iso(gap.afterMs)} can be restored from it until its next ` +
      'backup, which begins by itself; WAL was removed before it had it' +
      (problem === null ? '' : `: ${problem}`)
    );
  if (!isLate) return null;
  return `has nothing since ${iso(oldestMs)} (${Math.ceil(bytes / 1e6)} MB of WAL wait): ${why}`;
}

const iso = (ms: number): string => new Date(ms).toISOString();

/** The warning of a backup in a repository that could not be restored. */
function unverifiedWarnings(name: string, id: string, { verification }: OffMachine): Warning[] {
  if (verification?.problem === undefined) return [];
  const { at, problem } = verification;
  return [
    {
      code: 'VERIFICATION',
      message:
        `the backup in the repository ${name} could not be restored at ${at}: ${problem}; ` +
        `make a new one (howdah backup run ${id} --full), then verify it ` +
        `(howdah backup verify ${id} --repository)`,
    },
  ];
}

async function replicasOf(topology: Topology, id: string): Promise<ReplicaState[]> {
  return nodeStates(topology, id) ?? replicaStates(topology, id);
}

async function usageOf({ machine, topology, glances }: Local, id: string): Promise<Usage[]> {
  const { monitor } = topology;
  const first = machine.layout.primaryOf(id);
  const numbers = (await instanceNumbers(machine, id)).toSorted(
    (a, b) => Number(b === first) - Number(a === first) || a - b,
  );
  const lags = new Map(
    (await replicasOf(topology, id)).map(({ node, lag_bytes: bytes, lag_seconds: seconds }) => [
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
    const source = { monitor, shares: machine.shares };
    const { usage, glance } = await measure(source, paths, key, server.postmaster, before);
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
async function memoryWarnings({ machine, outOfMemory }: Local, id: string): Promise<Warning[]> {
  const numbers = await instanceNumbers(machine, id);
  const found = await Promise.all(numbers.map((n) => outOfMemory.warning(memberKey(id, n))));
  return found.filter((warning) => warning !== null).slice(0, 1);
}
