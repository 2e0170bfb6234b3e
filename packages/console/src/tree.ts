/** Services in the order of the list: each fork below its parent, one level further in. */
import type { Service } from './api.ts';

export type Placed = { service: Service; depth: number };

/** A fork whose parent is not among them stands by itself. */
export function forkTree(services: readonly Service[]): Placed[] {
  const known = new Set(services.map(({ service_id: id }) => id));
  const forksOf = new Map<string | null, Service[]>();
  for (const service of services) {
    const parent = service.forked_from?.service_id;
    const place = parent !== undefined && known.has(parent) ? parent : null;
    forksOf.set(place, [...(forksOf.get(place) ?? []), service]);
  }
  const below = (parent: string | null, depth: number): Placed[] =>
    (forksOf.get(parent) ?? []).flatMap((service) => [
      { service, depth },
      ...below(service.service_id, depth + 1),
    ]);
  return below(null, 0);
}
