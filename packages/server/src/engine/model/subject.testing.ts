/** The model engine as a subject of the conformance suite. */
import { createMemoryRecords } from '../conformance/memory-records.ts';
import type { Subject } from '../conformance/subject.ts';
import type { ClusterRecords } from '../records.ts';
import type { ServiceSpec } from '../spec.ts';
import { createModelEngine, type ModelEngine } from './index.ts';
import { createMemoryStore } from './state.ts';

/** The change that a planted violation makes to the model engine. */
export type Violation = {
  engine?: (engine: ModelEngine) => ModelEngine;
  records?: (store: ClusterRecords) => ClusterRecords;
  changed?: (id: string) => boolean;
};

const START_MS = Date.parse('2026-01-01T00:00:00Z');
const FIRST_PORT = 20_000;
const FIRST_PASSWORD = 'first';
const SNAPSHOT_EVERY_MS = 60_000;
const CLIENT_NETWORK = '127.0.0.0/8';

/** A model engine whose time passes while the suite waits; the same one for each call. */
export function createModelSubject(violation: Violation = {}): Subject {
  const store = createMemoryStore();
  const changed = new Set<string>();
  let made = 0;
  const newPort = (): number => FIRST_PORT + (made += 1);
  const records = createMemoryRecords({ take: async () => newPort() });
  let bare: ModelEngine | null = null;
  const make = (): ModelEngine => {
    bare = createModelEngine({
      seed: 'conformance',
      records: violation.records?.(records.store) ?? records.store,
      changed: (id) => {
        if (violation.changed?.(id) !== false) changed.add(id);
      },
      policy: {
        windowMs: 86_400_000,
        snapshotEveryMs: SNAPSHOT_EVERY_MS,
        failoverCooldownMs: 60_000,
      },
      readLagLimit: { bytes: 1, seconds: 1 },
      store,
      realMs: () => START_MS,
    });
    return violation.engine?.(bare) ?? bare;
  };
  let engine = make();
  const documentOf = async (id: string): Promise<unknown> =>
    (await store.load()).get(`service/${id}`);

  return {
    get engine() {
      return engine;
    },
    records,
    changed,
    firstPassword: FIRST_PASSWORD,
    clientNetwork: CLIENT_NETWORK,
    snapshotEveryMs: SNAPSHOT_EVERY_MS,
    newPort: async () => newPort(),
    listens: async (port) => [...(await store.load()).values()].some((one) => hasPort(one, port)),
    newSpec: async () => newSpec(newPort()),
    verifierOf: async (password) => verifierOf(password),
    canLogIn: async ({ id }, password) => {
      const document = await documentOf(id);
      if (!(await engine.lifecycle.runs(id)) || !allowsLocal(document)) return false;
      return Reflect.get(Object(document), 'verifier') === verifierOf(password);
    },
    insertRows: ({ id }, rows) => engine.simulation.write(id, rows),
    countRows: async ({ id }) => {
      const rows = await engine.simulation.countRows(id);
      if (rows === null) throw new Error(`service ${id} does not answer`);
      return rows;
    },
    wait: (ms) => engine.simulation.advance(ms),
    nowMs: () => engine.simulation.nowMs(),
    kill: async (id, node) => void (await engine.simulation.kill(id, node)),
    loseData: async (id) => {
      const key = `service/${id}`;
      const document = await documentOf(id);
      await store.remove(key);
      await bare?.close();
      engine = make();
      return async () => {
        await store.save(key, document);
        await bare?.close();
        engine = make();
      };
    },
    recreate: async () => {
      await bare?.close();
      engine = make();
    },
    leftovers: async (id) => [...(await store.load()).keys()].filter((key) => key.endsWith(id)),
  };
}

/** Whether the document of a service allows the clients of the suite. */
function allowsLocal(document: unknown): boolean {
  const files: unknown = Reflect.get(Object(document), 'files');
  const networks: unknown = Reflect.get(Object(files), 'allowedNetworks');
  return networks === null || (Array.isArray(networks) && networks.includes(CLIENT_NETWORK));
}

/** Whether a document is that of a service which uses a port. */
function hasPort(document: unknown, port: number): boolean {
  if (typeof document !== 'object' || document === null) return false;
  const ports: unknown = Reflect.get(document, 'ports');
  return Array.isArray(ports) && ports.includes(port);
}

const verifierOf = (password: string): string => `SCRAM-SHA-256$4096:${password}`;

/** A service of one server. */
export function newSpec(port: number): ServiceSpec {
  return {
    id: `s${port}`,
    addons: [],
    major: null,
    preload: [],
    extension: null,
    size: { cpuMillis: 500, memoryGbs: 2 },
    storageGb: 10,
    restarts: 0,
    provisioned: false,
    power: 'running',
    endpoint: { host: 'simulated.invalid', port },
    projectId: null,
    firstVerifier: verifierOf(FIRST_PASSWORD),
    origin: null,
    recovery: null,
    upgrade: null,
    pooler: null,
    ha: null,
    vpc: null,
    allowedNetworks: null,
    set: null,
  };
}
