/** The ways in which planted violations change a model engine. */
import type { BeginStep, Seen, Verdict } from '../engine.ts';
import type { ClusterRecords } from '../records.ts';
import type { ServiceSpec } from '../spec.ts';
import type { ModelEngine } from './index.ts';
import type { Violation } from './subject.testing.ts';

type Lifecycle = ModelEngine['lifecycle'];
type Facet =
  | 'capabilities'
  | 'lifecycle'
  | 'addresses'
  | 'sql'
  | 'extensions'
  | 'observe'
  | 'backups'
  | 'storage'
  | 'networks';

/** Replaces some functions of a facet. */
export function replaced<F extends Facet | 'simulation'>(
  facet: F,
  change: (engine: ModelEngine) => Partial<NonNullable<ModelEngine[F]>>,
): Violation {
  return { engine: (engine) => ({ ...engine, [facet]: { ...engine[facet], ...change(engine) } }) };
}

export const NO_STEP: BeginStep = async () => undefined;

/** Changes the spec that the engine is given. */
export const otherSpec = (change: (spec: ServiceSpec) => ServiceSpec): Violation =>
  replaced('lifecycle', ({ lifecycle }) => ({
    converge: (spec, begin) => lifecycle.converge(change(spec), begin),
  }));

/** Changes the verdict that the engine answers. */
export const otherVerdict = (
  change: (verdict: Verdict, spec: ServiceSpec, lifecycle: Lifecycle) => Verdict | Promise<Verdict>,
): Violation =>
  replaced('lifecycle', ({ lifecycle }) => ({
    converge: async (spec, begin) => change(await lifecycle.converge(spec, begin), spec, lifecycle),
  }));

/** A step that nobody asked for, once for each service that had settled. */
export function restless(): Violation {
  const settled = new Set<string>();
  return otherVerdict((verdict, { id }) => {
    if (verdict.outcome !== 'settled') settled.delete(id);
    else if (settled.delete(id))
      return { did: 'connect', detail: null, seen: verdict.seen, outcome: 'again', waitMs: 0 };
    else settled.add(id);
    return verdict;
  });
}

/** Steps are announced after they were made. */
export function announcedLate(): Violation {
  return replaced('lifecycle', ({ lifecycle }) => ({
    converge: async (spec, begin) => {
      const announced: [string, Seen][] = [];
      const before = spec.firstVerifier === null ? begin : null;
      const collect: BeginStep = async (step, seen) => {
        // An error still interrupts the step.
        if (INTERRUPTS.test(String(begin))) await begin(step, seen);
        else announced.push([step, seen]);
      };
      const verdict = await lifecycle.converge(spec, before ?? collect);
      for (const [step, seen] of announced) await begin(step, seen);
      return verdict;
    },
  }));
}
const INTERRUPTS = /interrupt/;

/** A step that was interrupted is never made. */
export function givesUp(): Violation {
  const interrupted = new Set<string>();
  return replaced('lifecycle', ({ lifecycle }) => ({
    converge: async (spec, begin) => {
      const seen = { reachable: false, present: true, provisioned: false };
      if (interrupted.has(spec.id))
        return { did: null, detail: null, seen, outcome: 'failed', reason: 'given up' };
      return lifecycle.converge(spec, begin).catch((error: unknown) => {
        interrupted.add(spec.id);
        throw error;
      });
    },
  }));
}

/** The second engine on the same state fails while a service is half way. */
export function forgetsHalf(): Violation {
  let engines = 0;
  return {
    engine: (engine) => {
      engines += 1;
      const isSecond = engines === 2;
      const { lifecycle } = engine;
      return {
        ...engine,
        lifecycle: {
          ...lifecycle,
          converge: async (spec, begin) => {
            const verdict = await lifecycle.converge(spec, begin);
            const isHalfWay = isSecond && verdict.did === 'start PostgreSQL';
            return isHalfWay ? { ...verdict, outcome: 'failed', reason: 'forgotten' } : verdict;
          },
        },
      };
    },
  };
}

/** Rows are lost when a spec is seen. */
export function losesDataOf(isLost: (spec: ServiceSpec) => boolean): Violation {
  const lost = new Set<string>();
  return {
    engine: (engine) => ({
      ...engine,
      lifecycle: {
        ...engine.lifecycle,
        converge: (spec, begin) => {
          if (isLost(spec)) lost.add(spec.id);
          return engine.lifecycle.converge(spec, begin);
        },
      },
      simulation: {
        ...engine.simulation,
        countRows: async (id) => (lost.has(id) ? 0 : engine.simulation.countRows(id)),
      },
    }),
  };
}

/** The first power that was asked for is pursued to its end. */
export function stubborn(): Violation {
  const pursued = new Map<string, ServiceSpec['power']>();
  return replaced('lifecycle', ({ lifecycle }) => ({
    converge: async (spec, begin) => {
      const power = pursued.get(spec.id) ?? spec.power;
      pursued.set(spec.id, power);
      const verdict = await lifecycle.converge({ ...spec, power }, begin);
      if (verdict.outcome === 'settled') pursued.delete(spec.id);
      return verdict;
    },
  }));
}

/** The standby counts as the primary while it is being recorded. */
export function earlyPrimary(): Violation {
  let recording = false;
  return {
    records: (store) => ({
      ...store,
      recordPrimary: async (id, from, to) => {
        recording = true;
        return store.recordPrimary(id, from, to).finally(() => (recording = false));
      },
    }),
    engine: (engine) => ({
      ...engine,
      observe: {
        ...engine.observe,
        servers: async (id) =>
          (await engine.observe.servers(id)).map((server) => ({
            ...server,
            role: recording ? 'primary' : server.role,
          })),
      },
    }),
  };
}

/** An engine that finds another primary recorded when it begins takes it for server 0. */
export function knowsBetter(store: ClusterRecords): ClusterRecords {
  const wasFirst = new Map<string, number>();
  return {
    ...store,
    read: async (id) => {
      const record = await store.read(id);
      if (record === null) return null;
      const first = wasFirst.get(id) ?? record.primary;
      wasFirst.set(id, first);
      return first === 0 ? record : { ...record, primary: 0 };
    },
  };
}

/** A switchover that was asked for before a failover is made after it. */
export function neverSatisfied(store: ClusterRecords): ClusterRecords {
  const changesLeft = new Map<string, number>();
  return {
    ...store,
    begin: async (id) => {
      if ((await store.read(id))?.switchover === true) changesLeft.set(id, 2);
      await store.begin(id);
    },
    read: async (id) => {
      const record = await store.read(id);
      const isLeft = (changesLeft.get(id) ?? 0) > 0;
      return record === null ? null : { ...record, switchover: record.switchover || isLeft };
    },
    recordPrimary: (id, from, to) => {
      changesLeft.set(id, (changesLeft.get(id) ?? 0) - 1);
      return store.recordPrimary(id, from, to);
    },
  };
}

/** The same with a port where nothing is asked for. */
export const elsewhere = <T extends { port: number }>(place: T): T => ({
  ...place,
  port: place.port + 10_000,
});

/** After an unplanned change of the primary, `change` applies. */
export function afterFailover(
  change: (engine: ModelEngine, hasFailed: () => boolean) => ModelEngine,
) {
  let hasFailed = false;
  return {
    records: (store) => ({
      ...store,
      begin: async (id) => {
        hasFailed = true;
        await store.begin(id);
      },
    }),
    engine: (engine) => change(engine, () => hasFailed),
  } satisfies Violation;
}

/** A spec by which a removed service comes back. */
export const leftover = (id: string): ServiceSpec => ({
  id,
  addons: [],
  major: null,
  preload: [],
  extension: null,
  size: 'shared',
  storageGb: 1,
  restarts: 0,
  provisioned: false,
  power: 'running',
  endpoint: { host: '', port: 1 },
  projectId: null,
  firstVerifier: null,
  origin: null,
  recovery: null,
  upgrade: null,
  pooler: null,
  ha: null,
  vpc: null,
  allowedNetworks: null,
  set: null,
});

/** A fork begins with the data of now, whatever was asked for. */
export const forkedNow = (strategy: 'LAST_SNAPSHOT' | 'PITR'): Violation =>
  otherSpec((spec) =>
    spec.origin?.strategy === strategy
      ? { ...spec, origin: { ...spec.origin, strategy: 'NOW' } }
      : spec,
  );
