/** An engine that has everything and does nothing: for what depends on the metadata database alone, and goes by too fast with servers to be looked at. */
import type { Engine } from '../src/engine/engine.ts';

const there = { version: '18.0' };

export const fakeEngine: Engine = {
  capabilities: {
    engine: 'fake',
    types: { POSTGRES: there, TIMESCALEDB: there, VECTOR: there },
    pooler: there,
    gateway: there,
    vpc: { method: 'address', note: '' },
    storage: { method: 'measured', note: '' },
    isolation: { isolated: false, note: '' },
    limitsEnforced: false,
    limitsNote: '',
    cloneMethod: 'copy',
    forkCost: '',
  },
  readLagLimit: { bytes: 0, seconds: 0 },
  supports: () => there,
  portIsFree: async () => true,
  runs: async () => true,
  plan: () => [],
  converge: async () => await never('converge'),
  remove: async () => await never('remove'),
  convergeVpcs: async () => [],
  setPassword: async () => undefined,
  query: async () => await never('query'),
  backups: async () => ({
    window: { earliest: null, latest: null, days: 3 },
    snapshots: [],
    archive_mb: 0,
    problem: null,
  }),
  storage: async () => null,
  keepBackups: async () => false,
  verifyBackup: async () => await never('verifyBackup'),
  warnings: async () => [],
  disk: async () => ({ totalBytes: 1e12, freeBytes: 1e12, usedPercent: 0, path: '/' }),
  usedStorage: async () => 0,
  keepQuota: async () => ({ stop: null, changed: false }),
  keepReserve: async () => ({ did: null, heldBytes: 0, removedWal: [] }),
  logs: async () => ({ entries: [], cursor: null }),
  usage: async () => [],
  replicas: async () => [],
  members: async () => [],
  prepare: async () => undefined,
  close: async () => undefined,
};

async function never(what: string): Promise<never> {
  throw new Error(`the fake engine was asked to ${what}`);
}
