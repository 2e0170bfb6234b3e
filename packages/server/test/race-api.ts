/**
 * The API alone, on metadata that it shares with others: no reconciler, no servers. Races open it
 * twice, each with a pool and a loop of requests of its own; they meet in the metadata database.
 */
import { Kysely, PostgresDialect, type KyselyPlugin } from 'kysely';
import { Pool, type ClientConfig } from 'pg';
import pino from 'pino';
import {
  type App,
  createApp,
  createMemoryRecords,
  createModelEngine,
} from '../test-kubernetes/probe.ts';
import { useOf } from '../test-repositories/probe.ts';
import {
  blockListOf,
  createDurationCache,
  createEventHub,
  createLogReadLimit,
  createUsageReadLimit,
  createRegions,
  type Engine,
  LOCAL_REGION,
  type Store,
  type Tables,
} from './probe.ts';

/** A defect, to see that the races notice it. no-lock: rows are read without being locked. */
export type Plant = 'no-lock' | null;

export const PORTS: readonly [number, number] = [20_000, 29_999];

/** The engine of both: its services exist in memory. */
export function createRaceEngine(): Engine {
  const none = (): Promise<number> => Promise.reject(new Error('no server has a port of its own'));
  return createModelEngine({
    seed: 'races',
    records: createMemoryRecords({ take: none }).store,
    changed: () => undefined,
    policy: { windowMs: 86_400_000, snapshotEveryMs: 3_600_000, failoverCooldownMs: 60_000 },
    readLagLimit: { bytes: 1, seconds: 1 },
  });
}

/** Takes `for update` out of every statement. */
const forgetLocks: KyselyPlugin = {
  transformQuery: ({ node }) => {
    if (node.kind !== 'SelectQueryNode') return node;
    const { endModifiers: _, ...unlocked } = node;
    return unlocked;
  },
  transformResult: async ({ result }) => result,
};

export type RaceApi = { readonly app: App; readonly close: () => Promise<void> };

/** Calls that are in no race. */
function notRaced(): never {
  throw new Error('calls on repositories and regions are not raced');
}

/** Opens an API with sessions of its own. */
export async function openRaceApi(
  connection: ClientConfig,
  engine: Engine,
  plant: Plant,
): Promise<RaceApi> {
  const pool = new Pool({ ...connection, max: 4 });
  const db = new Kysely<Tables>({
    dialect: new PostgresDialect({ pool }),
    plugins: plant === 'no-lock' ? [forgetLocks] : [],
  });
  const store: Store = {
    db,
    pool,
    listen: () => undefined,
    holdsLock: () => true,
    close: () => db.destroy(),
  };
  const regions = createRegions({
    code: LOCAL_REGION,
    aliases: [],
    engine,
    portRange: PORTS,
    singleProject: false,
    spares: 0,
  });
  const sealer = { seal: (text: string) => Buffer.from(text), open: String };
  const app = await createApp(
    {
      store,
      regions,
      logReads: createLogReadLimit(),
      usageReads: createUsageReadLimit(),
      peeringProviders: [],
      http: {
        certificate: null,
        trustedProxies: [],
        names: [],
        connectionsPerAddress: 1000,
        failedKeysPerMinute: 1000,
        changesPerDay: 1_000_000,
      },
      durations: createDurationCache(store),
      webhooks: { sealer, allowed: blockListOf([]) },
      repositories: {
        sealer,
        program: notRaced,
        refresh: async () => undefined,
        useOf: async () => useOf([]),
      },
      clusters: {
        sealer,
        probe: notRaced,
        examine: notRaced,
        open: notRaced,
        tryStore: notRaced,
        useStore: notRaced,
        useSettings: notRaced,
        close: notRaced,
      },
      events: createEventHub(store),
      rounds: { figures: () => [] },
      caPem: '',
      restoreWindowMs: 86_400_000,
      notReady: async () => null,
      doctor: async () => [],
    },
    // With a planted defect, faults are expected.
    pino({ level: plant === null ? 'error' : 'silent' }, pino.destination(2)),
  );
  await app.ready();
  return {
    app,
    close: async () => {
      await app.close();
      await store.close();
    },
  };
}
