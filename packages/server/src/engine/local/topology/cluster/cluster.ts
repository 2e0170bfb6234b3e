/**
 * What is known of one service with replicas between two rounds. Each field says how it comes back
 * after a restart of the control plane.
 */
import type { Successor } from '../../../postgres/decisions/failover.ts';
import type { WrittenUnder } from '../../../postgres/replication/acknowledgement.ts';
import type { PlacedSpec } from '../../../postgres/decisions/placed-spec.ts';

export type Cluster = {
  readonly id: string;
  /**
   * The desired state of the last round; null: none yet, or the service is being removed. The
   * first round after a restart sets it. Until then a death is only reported to the reconciler,
   * whose round fails over as well.
   */
  spec: PlacedSpec | null;
  /**
   * Whether the file `primary` is known to name the primary that the metadata database records. The
   * first round compares the two: after a crash of the machine the file may be behind.
   */
  isAdopted: boolean;
  /**
   * Whether the metadata database was asked to record another primary, and its answer is unknown.
   * After a restart the first round reads what is recorded after the question, and
   * {@link isAdopted} is false.
   */
  isUnsure: boolean;
  /**
   * The last work that starts, stops or promotes a primary. A restart interrupts such work at any
   * point; every part of it can be repeated.
   */
  turn: Promise<unknown>;
  /** A failover under way; after a restart the observed state shows whether one is needed. */
  failingOver: Promise<Successor> | null;
  /**
   * When it last failed over, by a clock that is never set back; null: not since the start. It may
   * be lost: it only keeps two failovers of one control plane apart.
   */
  lastFailoverMs: number | null;
  /**
   * How far a primary had written when its quorum was seen in force. It may be lost: a later mark
   * is as good, and earlier quorums count until then.
   */
  writtenUnder: WrittenUnder | null;
};

/** @returns the record of a service, a new one if there is none yet */
export function clusterOf(
  { clusters }: { readonly clusters: Map<string, Cluster> },
  id: string,
): Cluster {
  const known = clusters.get(id) ?? {
    id,
    spec: null,
    isAdopted: false,
    isUnsure: false,
    turn: Promise.resolve(),
    failingOver: null,
    lastFailoverMs: null,
    writtenUnder: null,
  };
  clusters.set(id, known);
  return known;
}

/**
 * Runs work on a cluster one after the other: only one caller at a time starts, stops or promotes a
 * primary.
 */
export async function inTurn<T>(cluster: Cluster, work: () => Promise<T>): Promise<T> {
  const mine = cluster.turn.then(work);
  cluster.turn = mine.catch(() => undefined);
  return mine;
}
