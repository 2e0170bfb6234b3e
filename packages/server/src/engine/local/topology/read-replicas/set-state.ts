/**
 * What is known of one read replica set between two rounds. Each field says how it comes back after
 * a restart of the control plane.
 */
import type { Upstream } from '../../../postgres/replication/replication-state.ts';
import type { InstancePaths } from '../../host/layout.ts';
import type { PlacedSet, PlacedSpec } from '../../../postgres/decisions/placed-spec.ts';
import type { NodeKnown, Position } from '../../../postgres/replication/lag.ts';

/** A primary that accepts writes and answers. */
export type Primary = Upstream & {
  readonly key: string;
  readonly paths: InstancePaths;
  readonly port: number;
  /** The end of its WAL on the disk. */
  readonly flushed: bigint;
};

export type SetState = {
  /** The desired state of the last round; the first round after a restart sets both. */
  spec: PlacedSpec;
  set: PlacedSet;
  /**
   * Where the WAL of the primary ended. They may be lost: the lag is then measured against the
   * first position after the start.
   */
  positions: Position[];
  /** The last measurement of each node, by its number; each measurement replaces all of them. */
  nodes: Map<number, NodeKnown>;
  /**
   * Nodes that get no connections, since they are about to be restarted. They may be lost: the step
   * that withholds a node is interrupted with it, and begins by withholding it.
   */
  withheld: Set<number>;
  /** Nodes that run where the gateway does not get to: about to be moved. Observed each round. */
  elsewhere: ReadonlySet<number>;
  /** The nodes that the gateway routes to; null: unknown. Observed each round. */
  routed: readonly number[] | null;
  /**
   * Nodes that this control plane has asked, or has tried to. They must be lost: until a node is
   * asked, the connections to it stay.
   */
  asked: Set<number>;
  /** Nodes that run and are routed to, and that were not asked yet. Observed each round. */
  unasked: ReadonlySet<number>;
  /** A measurement under way; after a restart the next one begins. */
  measuring: Promise<Primary | null> | null;
};

/** @returns the record of a set with its desired state, a new one if there is none yet */
export function setStateOf(
  { sets }: { readonly sets: Map<string, SetState> },
  spec: PlacedSpec,
  set: PlacedSet,
): SetState {
  const known = sets.get(spec.id) ?? {
    spec,
    set,
    positions: [],
    nodes: new Map<number, NodeKnown>(),
    withheld: new Set<number>(),
    elsewhere: new Set<number>(),
    routed: null,
    asked: new Set<number>(),
    unasked: new Set<number>(),
    measuring: null,
  };
  known.spec = spec;
  known.set = set;
  sets.set(spec.id, known);
  return known;
}
