/** Which nodes of a read replica set get connections, by what is known of each. */
import { memberKey } from '../../host/layout.ts';
import type { Topology } from '../context.ts';
import { judgeNode, type Judgement } from '../../../postgres/decisions/node-rules.ts';
import type { SetState } from './set-state.ts';
import { dataOf } from '../standbys.ts';

/** Whether the gateway must route to node `n`, or why not. */
export function judge(
  { machine, monitor, readLagLimit }: Topology,
  { spec, nodes, withheld, elsewhere, unasked }: SetState,
  n: number,
): Judgement {
  const key = memberKey(spec.id, n);
  const node = {
    hasData: dataOf(machine.layout.member(spec.id, n)) !== 'absent',
    isConnected: monitor.isConnected(key),
    isSilent: monitor.silentMs(key) !== null,
    isUnasked: unasked.has(n),
    isWithheld: withheld.has(n),
    isElsewhere: elsewhere.has(n),
    measured: nodes.get(n) ?? null,
  };
  return judgeNode(node, readLagLimit);
}

/** The nodes that the gateway must route to. */
export function eligibleNodes(topology: Topology, known: SetState): number[] {
  return known.set.nodes.filter(({ n }) => judge(topology, known, n).eligible).map(({ n }) => n);
}
