/** The state of the nodes of read replica sets, as users see it. */
import type { ReplicaState, Warning } from '@howdah/contract';
import type { Topology } from '../context.ts';
import { judge } from './judge.ts';

/** The state of the nodes of a set; null: it is not a set, or was not observed yet. */
export function nodeStates(topology: Topology, id: string): ReplicaState[] | null {
  const known = topology.sets.get(id);
  if (known === undefined) return null;
  return known.set.nodes.map(({ n }) => {
    const lag = known.nodes.get(n)?.lag ?? null;
    const { detail } = judge(topology, known, n);
    return {
      node: n,
      serving: known.routed?.includes(n) === true,
      lag_bytes: lag?.bytes ?? null,
      lag_seconds: lag?.seconds ?? null,
      detail,
    };
  });
}

/** The read replica sets of a service that were observed. */
export function setsOf({ sets }: Topology, parent: string): string[] {
  return [...sets.values()].filter(({ set }) => set.parent === parent).map(({ spec }) => spec.id);
}

/** The problems of the read replica sets of a service. */
export function setWarnings(topology: Topology, parent: string): Warning[] {
  const missing = [...topology.sets.values()]
    .filter(({ spec, set }) => set.parent === parent && spec.power === 'running')
    .flatMap((known) =>
      known.set.nodes.flatMap(({ n }) => {
        const { eligible, detail } = judge(topology, known, n);
        return eligible ? [] : [`node ${n} of read replica set ${known.spec.id}: ${detail}`];
      }),
    );
  if (missing.length === 0) return [];
  const message = `no new connection is routed to ${missing.join('; ')}`;
  return [{ code: 'REPLICA_MISSING', message }];
}
