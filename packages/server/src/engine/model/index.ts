/**
 * An engine whose services exist in its state only: no PostgreSQL runs. Its steps, statuses and
 * figures are those of the other engines; a script sets how long its transitions take and which of
 * them fail, and its clock can be advanced. The same seed and the same calls have the same results.
 */
import type { Extension } from '@howdah/contract';
import { takeUsablePort } from '../spec.ts';
import {
  type Capabilities,
  type Engine,
  type Observing,
  type Possibility,
  type PostgresCapability,
  EngineUnavailable,
  type Extensions,
  type Networks,
} from '../engine.ts';
import type { ClusterRecords } from '../records.ts';
import { createBackups } from './backups.ts';
import { MODEL_VERSIONS } from './server-changes.ts';
import { createModelClock } from './clock.ts';
import { createControl, reopen, type ModelControl } from './control.ts';
import { convergeOnce, planOf, removeOnce, runs, tryOnce } from './lifecycle.ts';
import { createTurns } from '../../lib/turns.ts';
import type { Model, ModelPolicy } from './model.ts';
import { createObserving, dataOwnerOf, storageBytesOf } from './observe.ts';
import { EMPTY_SCRIPT } from './script.ts';
import { createMemoryStore, createState, type ModelStore } from './state.ts';

type ModelEngineOptions = Readonly<{
  /** Figures, delays and pauses follow from it. */
  seed: string;
  records: ClusterRecords;
  /** Called when something changed by itself, with the service's id. */
  changed: (id: string) => void;
  policy: ModelPolicy;
  readLagLimit: Observing['readLagLimit'];
  /** Where its services are kept; without one they live as long as the process. */
  store?: ModelStore;
  /** The time that its clock follows, in ms since the epoch. */
  realMs?: () => number;
}>;

export type ModelEngine = Engine & { readonly simulation: ModelControl };

/** No resolver answers this name (RFC 2606): nothing listens on endpoints of simulated services. */
const NOWHERE = 'simulated.invalid';

const NO_FILES = 'services of this region are simulated: they have no files';

const UNMOVABLE: Engine['moves'] = {
  place: 'machine',
  from: { why: 'a simulated service has no data that could move to another region' },
  to: { why: 'a region with simulated services takes no data of others' },
};

/** The answer to each statement. */
export const NO_POSTGRESQL =
  'a simulated service has no PostgreSQL: nothing listens on its endpoint, no statement can run';

export function createModelEngine(options: ModelEngineOptions): ModelEngine {
  const { seed, records, changed, policy, realMs = Date.now } = options;
  const clock = createModelClock(realMs);
  const state = createState(options.store ?? createMemoryStore(), {
    nowMs: clock.nowMs(),
    aheadMs: 0,
    networks: [],
    begun: {},
    script: {},
    scriptSetMs: clock.nowMs(),
    happened: [],
  });
  const model: Model = {
    seed,
    state,
    clock,
    realMs,
    policy,
    records,
    changed,
    specs: new Map(),
    inTurn: createTurns(),
    script: EMPTY_SCRIPT,
  };
  const open = reopen(model);
  return {
    capabilities: CAPABILITIES,
    lifecycle: {
      supports: (_addons, major) => supports(major),
      whyNotForked: () => null,
      begunAt: async () => null,
      majorOf: (id) => open().then(() => state.find(id)?.major ?? null),
      prepare: open,
      runs: async (id) => {
        await open();
        return runs(state.find(id));
      },
      plan: (...asked) => planOf(model, ...asked),
      whyNoChanges: async () => null,
      converge: async (spec, begin) => {
        await open();
        return model.inTurn(spec.id, () => convergeOnce(model, spec, begin));
      },
      remove: async (id, _parent, begin) => {
        await open();
        return model.inTurn(id, () => removeOnce(model, id, begin));
      },
    },
    upgrades: {
      whyNotConverted: (_addons, major) => whyMissing(supports(major)),
      tryUpgrade: (...asked) => open().then(() => tryOnce(model, ...asked)),
    },
    adoption: null,
    addresses: {
      // Nothing listens on any of them.
      reserve: async (ports, { poolerOf }) => {
        const port = await takeUsablePort(ports, async () => true);
        return { host: poolerOf ?? NOWHERE, port };
      },
      isCurrent: ({ host }) => host === NOWHERE,
    },
    sql: createSql(model, open),
    extensions: createExtensions(model, open),
    observe: createObserving(model, open, options.readLagLimit),
    backups: createBackups(model, open),
    offMachine: null,
    storage: createStorage(model, open),
    storageGuard: null,
    networks: createNetworks(model, open),
    leasing: null,
    moves: UNMOVABLE,
    sleep: null,
    simulation: createControl(model, open),
    close: async () => clock.close(),
  };
}

const createNetworks = ({ state }: Model, open: () => Promise<void>): Networks => ({
  converge: async (specs) => {
    await open();
    const ids = specs.map(({ id }) => id);
    const isNew = ids.filter((id) => !state.region().networks.includes(id));
    await state.changeRegion((region) => {
      region.networks = ids;
    });
    return isNew;
  },
});

function createSql({ state }: Model, open: () => Promise<void>): Engine['sql'] {
  return {
    // The caller may hold the row of the service in a transaction: no waiting for a turn.
    setPassword: async (id, verifier, { isPaused }) => {
      await open();
      if (!isPaused && !runs(state.find(id)))
        throw new EngineUnavailable('the server is not running');
      await state.change(id, (service) => {
        service.verifier = verifier;
      });
    },
    whyNoPooler: async () => null,
    query: async () => {
      throw new EngineUnavailable(NO_POSTGRESQL);
    },
  };
}

const DISK_BYTES = 1e13;
/** About what the data of a new service takes. */
const SERVICE_BYTES = 42_000_000;

function createStorage(model: Model, open: () => Promise<void>): Engine['storage'] {
  const { state } = model;
  const usedBytes = (id: string): number => {
    const service = state.find(id);
    if (service === null || service.nodes.length === 0) return 0;
    return storageBytesOf(model, dataOwnerOf(model, service));
  };
  return {
    disk: async () => {
      await open();
      const freeBytes = Math.max(DISK_BYTES / 2, DISK_BYTES - state.count() * SERVICE_BYTES);
      const usedPercent = 100 * (1 - freeBytes / DISK_BYTES);
      return { totalBytes: DISK_BYTES, freeBytes, usedPercent };
    },
    shared: async (id) => {
      await open();
      const totalMb = Math.ceil(usedBytes(id) / 1e6);
      return { total_mb: totalMb, owned_mb: totalMb, shared_mb: 0 };
    },
    usedBytes: async (id) => {
      await open();
      return usedBytes(id);
    },
  };
}

const [VERSION] = MODEL_VERSIONS;
const POSSIBLE: Possibility = { possible: true };
const SIMULATED = 'simulated: no PostgreSQL runs';

const CAPABILITIES: Capabilities = {
  engine: 'model',
  types: { POSTGRES: VERSION, TIMESCALEDB: VERSION, VECTOR: VERSION },
  versions: { POSTGRES: MODEL_VERSIONS, TIMESCALEDB: MODEL_VERSIONS, VECTOR: MODEL_VERSIONS },
  // PgBouncer and HAProxy of Debian 13.
  pooler: { version: '1.24.1' },
  gateway: { version: '3.0.11' },
  offMachine: { missing: NO_FILES },
  archivesInStore: false,
  actions: {
    forkNow: POSSIBLE,
    forkPast: POSSIBLE,
    reset: { possible: false, why: NO_POSTGRESQL },
    enablePooler: POSSIBLE,
    setHA: POSSIBLE,
    switchover: POSSIBLE,
    drill: POSSIBLE,
    attachToVPC: POSSIBLE,
    attachToAllowList: POSSIBLE,
    verifyBackup: POSSIBLE,
    runBackup: { possible: false, why: NO_FILES },
    createReplicaSet: POSSIBLE,
    query: { possible: false, why: NO_POSTGRESQL },
    enableExtension: POSSIBLE,
    setAutoSuspend: { possible: false, why: 'simulated services have no server to stop' },
    disableExtension: POSSIBLE,
  },
  vpc: { isNetwork: true, note: SIMULATED },
  storage: { note: SIMULATED },
  isolation: { isolated: true, note: SIMULATED },
  limitsEnforced: true,
  limitsNote: SIMULATED,
  boundsCpu: false,
  room: null,
  cloneMethod: 'reflink',
  forkCost: SIMULATED,
};

const whyMissing = (found: PostgresCapability): string | null =>
  'missing' in found ? found.missing : null;

/** Every version that is simulated runs every type. */
function supports(major: number | null): PostgresCapability {
  return (
    MODEL_VERSIONS.find((one) => major === null || one.major === major) ?? {
      missing: `PostgreSQL ${major} is not simulated; GET /regions lists the versions`,
    }
  );
}

// The extensions of a model engine: a few, of each kind.

const extension = (
  name: string,
  comment: string,
  more: Partial<Pick<Extension, 'allowed' | 'reason' | 'preload'>> = {},
): Extension => ({
  name,
  kind: 'extension',
  default_version: '1.0',
  versions: ['1.0'],
  comment,
  requires: [],
  allowed: true,
  reason: 'simulated: no PostgreSQL runs',
  preload: false,
  ...more,
});

const EXTENSIONS: readonly Extension[] = [
  extension('pageinspect', 'inspect the contents of database pages', {
    allowed: false,
    reason: 'its functions are for superusers, and tsdbadmin is none',
  }),
  extension('pg_prewarm', 'prewarm relation data', { preload: true }),
  extension('pgstattuple', 'show tuple-level statistics'),
  extension('plpgsql', 'PL/pgSQL procedural language'),
  extension('timescaledb', 'time-series data', { preload: true }),
  extension('vector', 'vector data type and its indexes'),
];

function createExtensions({ state }: Model, open: () => Promise<void>): Extensions {
  return {
    installed: async () =>
      MODEL_VERSIONS.map(({ version }) => ({
        postgres_version: version,
        source: 'simulated',
        timescaledb_edition: 'community',
        extensions: [...EXTENSIONS],
      })),
    of: async (id) => {
      await open();
      const service = state.find(id);
      const created = ['plpgsql', ...(service?.extensions ?? [])];
      return EXTENSIONS.map((one) => {
        if (!runs(service)) return { ...one, state: 'unknown' };
        return created.includes(one.name)
          ? { ...one, state: 'enabled', version: '1.0' }
          : { ...one, state: 'disabled' };
      });
    },
  };
}
