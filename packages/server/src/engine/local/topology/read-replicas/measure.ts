/** Measures how far the nodes of a read replica set are behind their primary. */
import { memberKey } from '../../host/layout.ts';
import { nodeName } from '../../postgres/replication.ts';
import { findServer } from '../../postgres/server.ts';
import { parseLsn } from '../../postgres/wal.ts';
import type { Topology } from '../context.ts';
import { lagOf, remember } from '../lag.ts';
import { askReplay, askUpstream } from '../replication-state.ts';
import type { Primary, SetState } from './set-state.ts';

/** The primary of a service; null: there is none, or it does not answer. */
export async function findPrimary(
  { machine: { layout }, monitor }: Topology,
  parent: string,
): Promise<Primary | null> {
  const n = layout.primaryOf(parent);
  const [key, paths] = [memberKey(parent, n), layout.member(parent, n)];
  if (!monitor.isConnected(key) || monitor.silentMs(key) !== null) return null;
  const port = (await findServer(paths))?.port ?? null;
  if (port === null) return null;
  const state = await askUpstream(monitor, key);
  return state === null ? null : { key, paths, port, ...state, flushed: parseLsn(state.end) };
}

/**
 * Measures how far nodes are behind. While the primary cannot be asked they are as far behind as
 * they were: nothing is written.
 */
export function measure(topology: Topology, known: SetState): Promise<Primary | null> {
  known.measuring ??= measureNow(topology, known).finally(() => {
    known.measuring = null;
  });
  return known.measuring;
}

async function measureNow(topology: Topology, known: SetState): Promise<Primary | null> {
  const primary = await findPrimary(topology, known.set.parent);
  if (primary !== null)
    known.positions = remember(known.positions, {
      atMs: performance.now(),
      lsn: primary.flushed,
    });
  await Promise.all(known.set.nodes.map(({ n }) => measureNode(topology, known, n, primary)));
  return primary;
}

async function measureNode(
  { monitor }: Topology,
  known: SetState,
  n: number,
  primary: Primary | null,
): Promise<void> {
  const { id } = known.spec;
  const before = known.nodes.get(n);
  const answer = await askReplay(monitor, memberKey(id, n));
  if (answer === null) {
    known.nodes.delete(n);
    return;
  }
  known.asked.add(n);
  const streaming = primary?.streaming.includes(nodeName(id, n)) === true;
  const lsn = parseLsn(answer.replayed ?? '0/0');
  const streamedMs = streaming ? (known.positions.at(-1)?.atMs ?? 0) : (before?.streamedMs ?? 0);
  known.nodes.set(n, {
    takesWrites: !answer.recovering,
    paused: answer.paused,
    streaming,
    streamedMs,
    ahead: primary !== null && !streaming && lsn > primary.flushed,
    lag:
      primary === null
        ? (before?.lag ?? null)
        : lagOf(known.positions, { lsn, streaming, streamedMs }),
  });
}
