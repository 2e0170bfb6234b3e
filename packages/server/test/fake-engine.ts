/** An engine that has everything and does nothing: for what depends on the metadata database alone, and goes by too fast with servers to be looked at. */
import type { Engine } from '../src/engine/engine.ts';

const possible = { possible: true } as const;
const there = { version: '18.0' };

export const fakeEngine: Engine = {
  capabilities: {
    engine: 'fake',
    types: { POSTGRES: there, TIMESCALEDB: there, VECTOR: there },
    pooler: there,
    gateway: there,
    actions: {
      forkNow: possible,
      forkPast: possible,
      enablePooler: possible,
      setHA: possible,
      switchover: possible,
      drill: possible,
      attachToVPC: possible,
      verifyBackup: possible,
      createReplicaSet: possible,
      query: possible,
    },
    vpc: { isNetwork: false, note: '' },
    storage: { note: '' },
    isolation: { isolated: false, note: '' },
    limitsEnforced: false,
    limitsNote: '',
    cloneMethod: 'copy',
    forkCost: '',
  },
  lifecycle: {
    supports: () => there,
    prepare: async () => undefined,
    runs: async () => true,
    plan: () => [],
    converge: async () => await never('converge'),
    remove: async () => await never('remove'),
  },
  addresses: {
    reserve: async (ports) => ({ host: '127.0.0.1', port: await ports.take() }),
    isCurrent: () => true,
  },
  sql: { setPassword: async () => undefined, query: async () => await never('query') },
  observe: {
    readLagLimit: { bytes: 0, seconds: 0 },
    warnings: async () => [],
    logs: async () => ({ entries: [], cursor: null }),
    usage: async () => [],
    replicas: async () => [],
    servers: async () => [],
  },
  backups: {
    describe: async () => ({
      window: { earliest: null, latest: null, days: 3 },
      snapshots: [],
      archive_mb: 0,
      problem: null,
    }),
    keep: async () => false,
    verify: async () => await never('verify a backup'),
  },
  storage: {
    disk: async () => ({ totalBytes: 1e12, freeBytes: 1e12, usedPercent: 0 }),
    shared: async () => null,
    usedBytes: async () => 0,
    keepQuota: async () => ({ stop: null, changed: false }),
    keepReserve: async () => ({ did: null, heldBytes: 0, removedWal: [] }),
  },
  networks: { converge: async () => [] },
  simulation: null,
  close: async () => undefined,
};

async function never(what: string): Promise<never> {
  throw new Error(`the fake engine was asked to ${what}`);
}
