/** The room for servers on the nodes of a cluster. */
import type { Capacity } from '@howdah/contract';
import { Type, type Static } from 'typebox';
import type { Round, Rounds } from '../../../lib/rounds.ts';
import type { Room } from '../../engine.ts';
import type { Kube } from '../api/client.ts';
import { KINDS } from '../api/kinds.ts';

const NODE = Type.Object({
  spec: Type.Optional(Type.Object({ unschedulable: Type.Optional(Type.Boolean()) })),
  status: Type.Optional(
    Type.Object({
      allocatable: Type.Optional(
        Type.Object({ cpu: Type.Optional(Type.String()), memory: Type.Optional(Type.String()) }),
      ),
    }),
  ),
});
type Node = Static<typeof NODE>;

/** Sizes have so many thousandths of a core for each GiB of memory. */
const MILLIS_PER_GIB = 250;

const largestSize = ({ cpuMillis, memoryBytes }: Capacity): number =>
  Math.min(cpuMillis, (memoryBytes / 1024 ** 3) * MILLIS_PER_GIB);

/**
 * The room on the node that takes the largest pod; a pod that no node takes stays pending. null: no
 * node says what it has.
 */
export function largestNode(nodes: readonly Node[]): Room | null {
  const rooms = nodes.flatMap(({ spec, status }) => {
    const { cpu = '', memory = '' } = status?.allocatable ?? {};
    const [cores, bytes] = [quantityIn(cpu), quantityIn(memory)];
    if (spec?.unschedulable === true || cores === null || bytes === null) return [];
    return [{ cpuMillis: Math.floor(cores * 1000), memoryBytes: Math.floor(bytes) }];
  });
  const [largest] = rooms.toSorted((a, b) => largestSize(b) - largestSize(a));
  return largest === undefined
    ? null
    : { ...largest, place: 'the largest node of the cluster', isNode: true };
}

/**
 * Keeps the room at hand: an answer to a user does not wait for the cluster. The right to list
 * nodes is an extra one: without it, the room is not known and no size is refused.
 */
export function keepRoom(
  kube: Kube,
  rounds: Rounds,
): Readonly<{ room: () => Room | null; close: Round['close'] }> {
  let room: Room | null = null;
  const read = async (): Promise<void> => {
    const all = { kind: KINDS.node, namespace: null, name: null };
    room = await kube.list(all, NODE).then(
      ({ items }) => largestNode(items),
      () => null,
    );
  };
  const round = rounds.every('nodeCapacity', read);
  round.start();
  return { room: () => room, close: round.close };
}

// Quantities as Kubernetes writes them: a number with the suffix of a unit.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/

const FACTORS: ReadonlyMap<string, number> = new Map([
  ['n', 1e-9],
  ['u', 1e-6],
  ['m', 1e-3],
  ['', 1],
  ['k', 1e3],
  ['M', 1e6],
  ['G', 1e9],
  ['T', 1e12],
  ['Ki', 2 ** 10],
  ['Mi', 2 ** 20],
  ['Gi', 2 ** 30],
  ['Ti', 2 ** 40],
]);

/** The number of a quantity; null: it is none. */
export function quantityIn(text: string): number | null {
  const [, number, unit = ''] = /^(\d{1,18}(?:\.\d{1,9})?)([a-zA-Z]*)$/.exec(text) ?? [];
  const factor = FACTORS.get(unit);
  return number === undefined || factor === undefined ? null : Number(number) * factor;
}
