/** Which nodes of a read replica set get connections: none that could accept writes. */
import { isWithin, type Lag, type NodeKnown } from '../replication/lag.ts';

/** Whether the gateway must route to a node, or why not. */
export type Judgement = { readonly eligible: boolean; readonly detail: string };

/** The state of a node at this moment. */
export type NodeFacts = {
  readonly hasData: boolean;
  readonly isConnected: boolean;
  /** Whether it has missed a heartbeat. */
  readonly isSilent: boolean;
  /** Whether it runs and is routed to, and was not asked yet since the control plane started. */
  readonly isUnasked: boolean;
  /** Whether it is about to be restarted. */
  readonly isWithheld: boolean;
  /** Whether it runs where the gateway does not get to. */
  readonly isElsewhere: boolean;
  /** The node's last measurement; null: there is none. */
  readonly measured: NodeKnown | null;
};

/** @param limit how far a node may be behind */
export function judgeNode(node: NodeFacts, limit: Lag): Judgement {
  const { measured, isUnasked, isWithheld, isElsewhere } = node;
  const no = (detail: string) => ({ eligible: false, detail });
  if (!node.hasData) return no('being made from the primary');
  if (node.isSilent) return no('does not answer');
  // A restart of the control plane must not interrupt reads: it stays until it is asked.
  if (isUnasked && !isWithheld && !isElsewhere)
    return { eligible: true, detail: 'accepts connections; its lag has not been measured yet' };
  if (!node.isConnected || measured === null) return no('does not run yet');
  if (measured.takesWrites) return no('accepts writes: it is ended and recreated');
  if (isWithheld) return no('about to be restarted');
  if (isElsewhere) return no('about to be moved to where its service is');
  if (measured.ahead) return no('has log that the primary has not');
  if (measured.lag !== null && !isWithin(measured.lag, limit))
    return no(
      `too far behind: the limit is ${limit.bytes} bytes and ${limit.seconds} s ` +
        '(HOWDAH_READ_LAG_BYTES, HOWDAH_READ_LAG_SECONDS)',
    );
  return {
    eligible: true,
    detail: measured.streaming ? 'follows the primary' : 'serves, and waits for the primary',
  };
}
