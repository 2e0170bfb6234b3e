/** The points at which a run can be crashed, and a choice among them. */

/** Before, some time into, or after the nth time of an effect. */
export type Point = {
  effect: string;
  nth: number;
  when: 'before' | 'during' | 'after';
  delayMs: number;
};

/**
 * What a fault does: ends the control plane; holds it until released; loses the answer to a
 * statement, with the connection; ends the PostgreSQL of a service by its role, or the metadata'.
 */
export type Fault = 'kill' | 'hold' | 'lose' | { server: string };

/** A fault at a point. */
export type Hit = Point & { fault: Fault };

/**
 * Points of a run: each effect, of many alike the first, the middle and the last; before and after,
 * and in the middle of what takes time.
 */
export function pointsOf(trace: readonly string[]): Point[] {
  const counts = new Map<string, number>();
  for (const effect of trace) counts.set(effect, (counts.get(effect) ?? 0) + 1);
  return [...counts].flatMap(([effect, count]) => {
    const whens = /^(rm|copyFile|writeFile|rename|spawn) /.test(effect)
      ? (['before', 'during', 'after'] as const)
      : (['before', 'after'] as const);
    const nths =
      count <= 3
        ? Array.from({ length: count }, (_, index) => index + 1)
        : [1, Math.ceil(count / 2), count];
    return nths.flatMap((nth) => whens.map((when) => ({ effect, nth, when, delayMs: 1 })));
  });
}

/**
 * Every fault that a scene is worth: at the control plane, and at its servers; one that is being
 * made can be killed once it runs.
 */
export function hitsOf(
  points: readonly Point[],
  { servers }: { servers: readonly string[] },
): Hit[] {
  const launch = points.findIndex(({ effect }) => effect.startsWith('spawn sh services/new/pid'));
  const atServers = [...servers, 'store'].flatMap((server) =>
    points
      .filter(
        ({ when }, index) =>
          when !== 'before' && (server !== 'new' || launch === -1 || index >= launch),
      )
      .map((point): Hit => ({ ...point, fault: { server } })),
  );
  const statements = points.filter(
    ({ effect, when }) => when === 'after' && /^(commit|tell) /.test(effect),
  );
  return [
    ...points.map((point): Hit => ({ ...point, fault: 'kill' })),
    ...statements.map((point): Hit => ({ ...point, fault: 'lose' })),
    ...atServers,
  ];
}

/** `count` of them, evenly spread, beginning where the seed says. */
export function sample<T>(all: readonly T[], count: number, random: () => number): T[] {
  if (all.length <= count) return [...all];
  const offset = random();
  return Array.from(
    { length: count },
    (_, index) => all[Math.floor(((index + offset) / count) * all.length)],
  ).filter((one) => one !== undefined);
}

/** A hit in words. */
export function describeHit({ effect, nth, when, delayMs, fault }: Hit): string {
  if (fault === 'lose') return `the answer lost of ${effect}${nth === 1 ? '' : ` (time ${nth})`}`;
  const victim = typeof fault === 'string' ? 'the control plane' : `PostgreSQL of ${fault.server}`;
  return (
    `${victim} killed ${when === 'during' ? `${delayMs} ms into` : when} ` +
    `${effect}${nth === 1 ? '' : ` (time ${nth})`}`
  );
}

/** mulberry32: small, seeded, good enough to explore orderings. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
