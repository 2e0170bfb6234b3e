/** The steps of the connection pooler of a read replica set. */
import { setTimeout as sleep } from 'node:timers/promises';
import { memberKey } from '../../host/layout.ts';
import { parseLsn } from '../../postgres/wal.ts';
import { reloadPooler, stopPooler } from '../../proxy/pooler.ts';
import { planOrThrow, startPooler } from '../apply.ts';
import { listenerFor, type Topology } from '../context.ts';
import type { Step } from '../decide.ts';
import { askReplay } from '../replication-state.ts';
import { eligibleNodes } from './judge.ts';
import type { SetObserved } from './observe.ts';
import type { SetState } from './set-state.ts';
import { primaryOrWait } from './slots.ts';

/** How long the start of a pooler waits for its role to be replayed by the nodes. */
const REPLAY_MS = 60_000;

export async function applyToPoolerOfSet(
  topology: Topology,
  known: SetState,
  step: Step,
  { primary, pooler: plan }: SetObserved,
): Promise<string> {
  const { machine, executor, poolers } = topology;
  const { spec } = known;
  const paths = machine.layout.service(spec.id);
  const serversNow = () => ({
    primary: primaryOrWait(primary),
    untilReplayed: (lsn: bigint) => untilReplayed(topology, known, lsn),
  });
  switch (step.kind) {
    case 'startPooler':
      return startPooler(executor, spec.id, paths, listenerFor(topology, spec), plan, serversNow());
    case 'reloadPooler':
      return reloadPooler(poolers, spec.id, paths, planOrThrow(plan), serversNow());
    case 'stopPooler':
      await stopPooler(poolers, paths);
      return step.why;
    default:
      return '';
  }
}

/**
 * Waits until all nodes that the gateway routes to have replayed the WAL up to a position.
 *
 * @throws Error naming a node that has not done so within {@link REPLAY_MS}; the step is tried
 *   again
 */
async function untilReplayed(topology: Topology, known: SetState, lsn: bigint): Promise<void> {
  const end = Date.now() + REPLAY_MS;
  for (;;) {
    const nodes = await Promise.all(
      eligibleNodes(topology, known).map(async (n) => ({
        n,
        answer: await askReplay(topology.monitor, memberKey(known.spec.id, n)),
      })),
    );
    // A node that does not answer soon gets no connections; it is asked again if it does.
    const behind = nodes.find(
      ({ answer }) => answer === null || parseLsn(answer.replayed ?? '0/0') < lsn,
    );
    if (behind === undefined) return;
    if (Date.now() > end)
      throw new Error(
        `node ${behind.n} has not replayed the role of the pooler within ${REPLAY_MS / 1000} s`,
      );
    await sleep(20);
  }
}
