/**
 * The API alone, as a process of its own on metadata that it shares with others: no reconciler, no
 * servers. It gets the place of the metadata database in a message, and answers with its port.
 * Forked by races.ts.
 */
import { once } from 'node:events';
import { Kysely, PostgresDialect, type KyselyPlugin } from 'kysely';
import { Pool, type ClientConfig } from 'pg';
import pino from 'pino';
import { createApp } from '../src/api/app.ts';
import { createEventHub } from '../src/events/hub.ts';
import { blockListOf } from '../src/events/networks.ts';
import { createRegions } from '../src/engine/regions.ts';
import { createDurationCache } from '../src/services/operations.ts';
import { createLogReadLimit } from '../src/services/read-limit.ts';
import { LOCAL_REGION } from '../src/settings.ts';
import type { Store } from '../src/store/database.ts';
import type { Tables } from '../src/store/tables.ts';
import { fakeEngine } from './fake-engine.ts';

/** plant: a defect, to see that the races notice it. no-lock: rows are read without being locked. */
export type ApiOrder = {
  connection: ClientConfig;
  portRange: [number, number];
  plant: 'no-lock' | null;
};

/** Takes `for update` out of every statement. */
const forgetLocks: KyselyPlugin = {
  transformQuery: ({ node }) => {
    if (node.kind !== 'SelectQueryNode') return node;
    const { endModifiers: _, ...unlocked } = node;
    return unlocked;
  },
  transformResult: async ({ result }) => result,
};

process.once('message', (order: ApiOrder) => void serve(order));
process.once('disconnect', () => process.exit());

async function serve({ connection, portRange, plant }: ApiOrder): Promise<void> {
  const pool = new Pool({ ...connection, max: 4 });
  const db = new Kysely<Tables>({
    dialect: new PostgresDialect({ pool }),
    plugins: plant === 'no-lock' ? [forgetLocks] : [],
  });
  const store: Store = { db, pool, listen: () => undefined, close: () => db.destroy() };
  const regions = createRegions({
    code: LOCAL_REGION,
    aliases: [],
    engine: fakeEngine,
    portRange,
    singleProject: false,
    spares: 0,
  });
  const sealer = { seal: (text: string) => Buffer.from(text), open: String };
  const app = await createApp(
    {
      store,
      regions,
      logReads: createLogReadLimit(),
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
      events: createEventHub(store),
      caPem: '',
      restoreWindowMs: 86_400_000,
      notReady: async () => null,
      doctor: async () => [],
    },
    // With a planted defect, faults are expected.
    pino({ level: plant === null ? 'error' : 'silent' }, pino.destination(2)),
  );
  await app.listen({ host: '127.0.0.1', port: 0 });
  const address = app.server.address();
  process.send?.({ port: typeof address === 'object' && address !== null ? address.port : 0 });
  await once(process, 'disconnect');
}
