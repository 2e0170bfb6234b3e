/** The regions that a control plane serves, each with the engine that runs its services. */
import { EngineUnavailable, type Engine } from './engine.ts';

export type Region = {
  readonly code: string;
  /** Further names by which requests may mean it. */
  readonly aliases: readonly string[];
  readonly engine: Engine;
  /** First and last port for databases; no other region has one of them. */
  readonly portRange: readonly [number, number];
  /** Whether one project alone may have services where they cannot have users of their own. */
  readonly singleProject: boolean;
  /** Running servers that are kept for the next create. */
  readonly spares: number;
};

export type Regions = {
  readonly all: readonly Region[];
  /** The region of creates that name none; null: there is no region yet. */
  readonly first: Region | null;
  /** @throws RegionNotServed for a region that this control plane does not serve */
  readonly of: (code: string) => Region;
  /** Serves another region from now on. */
  readonly add: (region: Region) => void;
  /** Serves a region no more. */
  readonly remove: (code: string) => void;
};

/** Thrown for a service whose region is switched off; its databases may go on. */
export class RegionNotServed extends EngineUnavailable {
  constructor(code: string) {
    super(
      `the region ${code} is switched off: its databases go on, ` +
        'and nothing can be read from them or ' +
        'changed here until the operator sets it again (HOWDAH_REGIONS, or howdah region add)',
    );
  }
}

export function createRegions(...regions: readonly Region[]): Regions {
  const byCode = new Map(regions.map((region) => [region.code, region]));
  return {
    get all() {
      return [...byCode.values()];
    },
    get first() {
      return [...byCode.values()][0] ?? null;
    },
    of: (code) => {
      const region = byCode.get(code);
      if (region === undefined) throw new RegionNotServed(code);
      return region;
    },
    add: (region) => void byCode.set(region.code, region),
    remove: (code) => void byCode.delete(code),
  };
}
