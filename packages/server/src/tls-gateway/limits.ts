/** How many clients the TLS gateway has at a time. Each place that is taken is left once. */
import { Address6 } from 'ip-address';

export type Limits = Readonly<{
  /** Sessions in all. */
  sessions: number;
  /** Clients that are not connected to their server yet. */
  handshakes: number;
}>;

/** Leaves a place. A further call does nothing. */
export type Leave = () => void;

/** The parts of all places that one project, one service and one address may take. */
const PROJECT_PART = 4;
const SERVICE_PART = 8;
const ADDRESS_PART = 4;

export type Places = ReturnType<typeof createPlaces>;

export function createPlaces({ sessions, handshakes }: Limits) {
  const all = createCounts(sessions);
  const ofProject = createCounts(partOf(sessions, PROJECT_PART));
  const ofService = createCounts(partOf(sessions, SERVICE_PART));
  const unfinished = createCounts(handshakes);
  const ofAddress = createCounts(partOf(handshakes, ADDRESS_PART));
  return {
    /** @param address of the client */
    takeHandshake: (address: string) =>
      takeAll([
        ['handshakes', unfinished.take('')],
        ['handshakes_of_address', ofAddress.take(networkOf(address))],
      ]),
    takeSession: ({ project, service }: Readonly<{ project: string; service: string }>) =>
      takeAll([
        ['sessions', all.take('')],
        ['sessions_of_project', ofProject.take(project)],
        ['sessions_of_service', ofService.take(service)],
      ]),
    count: () => ({ sessions: all.total(), handshakes: unfinished.total() }),
  };
}

const partOf = (all: number, part: number): number => Math.max(1, Math.floor(all / part));

export type FullReason =
  | 'handshakes'
  | 'handshakes_of_address'
  | 'sessions'
  | 'sessions_of_project'
  | 'sessions_of_service';

/** @returns how all places are left, or which of them is not to be had */
function takeAll(
  places: readonly (readonly [FullReason, () => Leave | null])[],
): Readonly<{ leave: Leave } | { full: FullReason }> {
  const taken: Leave[] = [];
  const leave = (): void => taken.forEach((one) => one());
  for (const [full, take] of places) {
    const one = take();
    if (one === null) {
      leave();
      return { full };
    }
    taken.push(one);
  }
  return { leave };
}

/** Counts places by a key. @param most of one key */
function createCounts(most: number) {
  const counts = new Map<string, number>();
  const leave = (key: string): void => {
    const left = (counts.get(key) ?? 1) - 1;
    if (left === 0) counts.delete(key);
    else counts.set(key, left);
  };
  return {
    take: (key: string) => (): Leave | null => {
      const count = counts.get(key) ?? 0;
      if (count >= most) return null;
      counts.set(key, count + 1);
      let isHeld = true;
      return () => {
        if (isHeld) leave(key);
        isHeld = false;
      };
    },
    total: (): number => [...counts.values()].reduce((sum, count) => sum + count, 0),
  };
}

/** One client may have all addresses of a network of IPv6: providers give /56, or /64. */
function networkOf(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, '').replace(/%.*$/, '');
  if (!plain.includes(':')) return plain;
  return new Address6(plain).canonicalForm().slice(0, '0000:0000:0000:00'.length);
}
