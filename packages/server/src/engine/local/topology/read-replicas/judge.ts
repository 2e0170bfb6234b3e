/** Which nodes of a read replica set get connections: none that could accept writes. */
import { memberKey } from '../../host/layout.ts';
import type { Topology } from '../context.ts';
import { isWithin, type SetState } from './set-state.ts';
import { dataOf } from '../standbys.ts';

/** Whether the gateway must route to a node, or why not. */
export type Judgement = { readonly eligible: boolean; readonly detail: string };

/** Whether the gateway must route to node `n`, or why not. */
export function judge(
  { machine, monitor, readLagLimit }: Topology,
  { spec, nodes, withheld, elsewhere, unasked }: SetState,
  n: number,
): Judgement {
  const key = memberKey(spec.id, n);
  const node = nodes.get(n);
  const no = (detail: string) => ({ eligible: false, detail });
  if (dataOf(machine.layout.member(spec.id, n)) === 'absent')
    return no('being made from the primary');
  if (monitor.silentMs(key) !== null) return no('does not answer');
  // A restart of the control plane must not interrupt reads: it stays until it is asked.
  if (unasked.has(n) && !withheld.has(n) && !elsewhere.has(n))
    return { eligible: true, detail: 'accepts connections; its lag has not been measured yet' };
  if (!monitor.isConnected(key) || node === undefined) return no('does not run yet');
  if (node.takesWrites) return no('accepts writes: it is ended and recreated');
  if (withheld.has(n)) return no('about to be restarted');
  if (elsewhere.has(n)) return no('about to be moved to where its service is');
  if (node.ahead) return no('has log that the primary has not');
  if (node.lag !== null && !isWithin(node.lag, readLagLimit)) {
    const { bytes, seconds } = readLagLimit;
    return no(
      `too far behind: the limit is ${bytes} bytes and ${seconds} s ` +
        '(HOWDAH_READ_LAG_BYTES, HOWDAH_READ_LAG_SECONDS)',
    );
  }
  return {
    eligible: true,
    detail: node.streaming ? 'follows the primary' : 'serves, and waits for the primary',
  };
}

/** The nodes that the gateway must route to. */
export function eligibleNodes(topology: Topology, known: SetState): number[] {
  return known.set.nodes.filter(({ n }) => judge(topology, known, n).eligible).map(({ n }) => n);
}
