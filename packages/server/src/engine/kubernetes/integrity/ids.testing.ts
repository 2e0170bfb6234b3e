/** The ids of services for tests. */
import type { Ids } from './compare.ts';

export const idsOf = (known: string[], elsewhere: string[] = [], moved: string[] = []): Ids => ({
  known: new Set(known),
  elsewhere: new Set(elsewhere),
  moved: new Set(moved),
});
