/**
 * The services of a model engine, and the place where it keeps them.
 *
 * A {@link ModelStore} outlives the engine: each change is saved before the call that made it
 * returns, as one document. A step is done or not, with nothing in between. An engine that is made
 * on the same store continues. With a store in memory, the services of an earlier process are
 * gone; the reconciler then creates them again by their specs, without their data.
 */
import { Type, type Static } from 'typebox';
import { Check } from 'typebox/value';
import { SIMULATED_TRANSITIONS } from '@howdah/contract';
import { createGroups } from '../../lib/groups.ts';
import { createTurns } from '../../lib/turns.ts';

/** Keeps documents: plain JSON, by key. A table of two columns can be one. */
export type ModelStore = {
  load: () => Promise<ReadonlyMap<string, unknown>>;
  save: (key: string, document: unknown) => Promise<void>;
  remove: (key: string) => Promise<void>;
};

/** A store that lives as long as the process. */
export function createMemoryStore(): ModelStore {
  const documents = new Map<string, string>();
  return {
    load: async () =>
      new Map([...documents].map(([key, text]): [string, unknown] => [key, JSON.parse(text)])),
    save: async (key, document) => void documents.set(key, JSON.stringify(document)),
    remove: async (key) => void documents.delete(key),
  };
}

const orNull = <T extends Parameters<typeof Type.Union>[0][number]>(schema: T) =>
  Type.Union([schema, Type.Null()]);
const SizeSchema = Type.Union([
  Type.Literal('shared'),
  Type.Object({ cpuMillis: Type.Integer(), memoryGbs: Type.Integer() }),
]);
const PlaceSchema = orNull(Type.String());

const NodeSchema = Type.Object({
  n: Type.Integer(),
  /** The role that its server has, or would have if it started on the data. */
  data: Type.Union([Type.Literal('primary'), Type.Literal('standby')]),
  runs: Type.Boolean(),
  /** The size and the libraries that it was started with; older documents have none. */
  size: SizeSchema,
  libraries: Type.Optional(Type.Array(Type.String())),
  /** How many restarts had been requested when it was started; absent: none. */
  restarts: Type.Optional(Type.Integer()),
  /** The VPC whose network it runs in; null: none. */
  place: PlaceSchema,
  /** Whether the gateway of its read replica set routes to it. */
  isServing: Type.Boolean(),
});
export type ModelNode = Static<typeof NodeSchema>;

const CheckSchema = Type.Object({
  name: Type.String(),
  succeeded: Type.Boolean(),
  detail: Type.String(),
});
const SnapshotSchema = Type.Object({
  id: Type.String(),
  kind: Type.Union([Type.Literal('initial'), Type.Literal('scheduled')]),
  takenMs: Type.Number(),
  rows: Type.Number(),
  verification: orNull(
    Type.Object({
      at: Type.String(),
      succeeded: Type.Boolean(),
      recovery_seconds: orNull(Type.Number()),
      recovery_point: orNull(Type.String()),
      checks: Type.Array(CheckSchema),
      problem: Type.Optional(Type.String()),
    }),
  ),
});
export type ModelSnapshot = Static<typeof SnapshotSchema>;

const LogLineSchema = Type.Object({
  /** The line's number among all lines of the service, from 1. */
  number: Type.Integer(),
  node: Type.Integer(),
  atMs: Type.Number(),
  severity: Type.String(),
  message: Type.String(),
});

const CommitsSchema = Type.Array(Type.Object({ atMs: Type.Number(), rows: Type.Number() }));

const ServiceSchema = Type.Object({
  id: Type.String(),
  /** The service that a read replica set follows. */
  parent: orNull(Type.String()),
  /** The service that a fork that is not yet provisioned is made from. */
  origin: orNull(Type.String()),
  provisioned: Type.Boolean(),
  /** The major version of the PostgreSQL that its data is of; null: it has no data. */
  major: orNull(Type.Integer()),
  /** The upgrade that has made its data, and the one whose data is made and not in use yet. */
  upgrade: Type.Optional(orNull(Type.String())),
  converted: Type.Optional(orNull(Type.String())),
  /** The data from before the last upgrade. */
  former: Type.Optional(
    orNull(
      Type.Object({
        id: Type.String(),
        major: orNull(Type.Integer()),
        commits: CommitsSchema,
        snapshots: Type.Array(SnapshotSchema),
      }),
    ),
  ),
  /** The SCRAM verifier of the admin role's password. */
  verifier: orNull(Type.String()),
  /** The contents of its configuration files. */
  files: Type.Object({
    size: SizeSchema,
    libraries: Type.Optional(Type.Array(Type.String())),
    storageGb: Type.Number(),
    allowedNetworks: orNull(Type.Array(Type.String())),
  }),
  /** The names of the extensions in its database; older documents have none. */
  extensions: Type.Optional(Type.Array(Type.String())),
  gateway: orNull(
    Type.Object({ place: PlaceSchema, allowedNetworks: orNull(Type.Array(Type.String())) }),
  ),
  pooler: orNull(Type.Object({ place: PlaceSchema })),
  /** Where its listeners are. */
  ports: Type.Array(Type.Integer()),
  primary: Type.Integer(),
  lastFailoverMs: orNull(Type.Number()),
  /** The standbys that each write waits for. */
  sync: Type.Integer(),
  nodes: Type.Array(NodeSchema),
  /** Rows that clients have written. */
  commits: CommitsSchema,
  /** When it stopped; null: it runs, or never ran. */
  stoppedMs: orNull(Type.Number()),
  /** Newest first. */
  snapshots: Type.Array(SnapshotSchema),
  snapshotProblem: orNull(Type.String()),
  /** Oldest first. */
  logLines: Type.Array(LogLineSchema),
  /** A transition that has begun and is not done. */
  pending: orNull(
    Type.Object({
      step: Type.String(),
      transition: Type.Enum([...SIMULATED_TRANSITIONS]),
      number: Type.Integer(),
      failed: Type.Integer(),
      doneMs: Type.Number(),
    }),
  ),
});
export type ModelService = Static<typeof ServiceSchema>;

const RegionSchema = Type.Object({
  /** The time of its clock when this was saved. */
  nowMs: Type.Number(),
  /** How far it was ahead of real time then. */
  aheadMs: Type.Number(),
  networks: Type.Array(Type.String()),
  /** How many transitions of each kind have begun since the script was set. */
  begun: Type.Record(Type.String(), Type.Integer()),
  /** The script as it was set; null: none was. */
  script: Type.Unknown(),
  /** When the script was set, and how many of its events have happened. */
  scriptSetMs: Type.Number(),
  happened: Type.Array(Type.Integer()),
});
export type ModelRegion = Static<typeof RegionSchema>;

const REGION_KEY = 'region';
const serviceKey = (id: string): string => `service/${id}`;

/** The services of an engine, in memory and in its store. */
export type ModelState = {
  /** Reads its store, once. */
  open: () => Promise<void>;
  find: (id: string) => ModelService | null;
  /** All services: for calls of a user only. A call for each service must not be linear. */
  list: () => readonly ModelService[];
  count: () => number;
  /** The read replica sets that follow a service. */
  setsOf: (id: string) => readonly ModelService[];
  /** The forks of a service that are not yet provisioned. */
  forksOf: (id: string) => readonly ModelService[];
  /** Changes a copy of a service, saves it, and shows it from then on; one change at a time. */
  change: <T>(id: string, change: (service: ModelService) => T) => Promise<T>;
  remove: (id: string) => Promise<void>;
  region: () => ModelRegion;
  changeRegion: <T>(change: (region: ModelRegion) => T) => Promise<T>;
};

export function createState(store: ModelStore, first: ModelRegion): ModelState {
  const services = new Map<string, ModelService>();
  const [sets, forks] = [createGroups(), createGroups()];
  const put = (service: ModelService): void => {
    const { id, parent, origin, provisioned } = service;
    services.set(id, service);
    sets.put(id, parent);
    forks.put(id, provisioned ? null : origin);
  };
  const found = (ids: Iterable<string>): ModelService[] =>
    [...ids].flatMap((id) => services.get(id) ?? []);
  const inTurn = createTurns();
  let region = first;
  let opened: Promise<void> | null = null;

  const read = async (): Promise<void> => {
    for (const [key, document] of await store.load()) {
      if (key === REGION_KEY && Check(RegionSchema, document)) region = document;
      else if (Check(ServiceSchema, document)) put(document);
      else
        throw new Error(
          `simulated_documents: found ${key}, which is neither a service nor a ` +
            'script; delete that row',
        );
    }
  };

  return {
    open: () =>
      (opened ??= read().catch((error: unknown) => {
        opened = null;
        throw error;
      })),
    find: (id) => services.get(id) ?? null,
    list: () => [...services.values()],
    count: () => services.size,
    setsOf: (id) => found(sets.of(id)),
    forksOf: (id) => found(forks.of(id)),
    change: (id, change) =>
      inTurn(serviceKey(id), async () => {
        const copy = structuredClone(services.get(id) ?? newService(id));
        const result = change(copy);
        await store.save(serviceKey(id), copy);
        put(copy);
        return result;
      }),
    remove: (id) =>
      inTurn(serviceKey(id), async () => {
        await store.remove(serviceKey(id));
        services.delete(id);
        sets.put(id, null);
        forks.put(id, null);
      }),
    region: () => region,
    changeRegion: (change) =>
      inTurn(REGION_KEY, async () => {
        const copy = structuredClone(region);
        const result = change(copy);
        await store.save(REGION_KEY, copy);
        region = copy;
        return result;
      }),
  };
}

/** A service of which nothing exists yet. */
export function newService(id: string): ModelService {
  return {
    id,
    parent: null,
    origin: null,
    provisioned: false,
    major: null,
    verifier: null,
    files: { size: 'shared', storageGb: 0, allowedNetworks: null },
    gateway: null,
    pooler: null,
    ports: [],
    primary: 0,
    lastFailoverMs: null,
    sync: 0,
    nodes: [],
    commits: [],
    stoppedMs: null,
    snapshots: [],
    snapshotProblem: null,
    logLines: [],
    pending: null,
  };
}

/** Whether anything of it exists. */
export function isPresent({ nodes, parent }: ModelService): boolean {
  return nodes.length > 0 || parent !== null;
}

/** A service's primary; undefined: it has none yet, or is a read replica set. */
export function primaryOf({ nodes, primary, parent }: ModelService): ModelNode | undefined {
  return parent === null ? nodes.find(({ n }) => n === primary) : undefined;
}

/** The nodes that follow the primary as they must. */
export function streamingOf(service: ModelService): ModelNode[] {
  if (primaryOf(service)?.runs !== true) return [];
  return service.nodes.filter(
    ({ n, data, runs }) => n !== service.primary && data === 'standby' && runs,
  );
}

/** Rows that were written up to a time. */
export function rowsAt({ commits }: Pick<ModelService, 'commits'>, atMs: number): number {
  return commits.reduce((sum, commit) => (commit.atMs <= atMs ? sum + commit.rows : sum), 0);
}

const KEPT_LOG_LINES = 500;

/** Adds a line to the server log of a node. */
export function writeLog(
  service: ModelService,
  node: number,
  atMs: number,
  message: string,
  severity = 'LOG',
): void {
  const number = (service.logLines.at(-1)?.number ?? 0) + 1;
  service.logLines.push({ number, node, atMs, severity, message });
  service.logLines.splice(0, service.logLines.length - KEPT_LOG_LINES);
}
