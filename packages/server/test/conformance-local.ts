/** The local engine with real PostgreSQL servers, as a subject of the conformance suite. */
import { readdir, readlink, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Client, DatabaseError } from 'pg';
import {
  certificateHosts,
  createLocalEngine,
  createMemoryRecords,
  type Subject,
} from '../test-kubernetes/probe.ts';
import { claimPorts, makeHome, PORTS } from './harness.ts';
import {
  createEgress,
  createTemplates,
  type Engine,
  findServer,
  gatewayCapability,
  groupIds,
  type Layout,
  type Machine,
  newId,
  openCertificateAuthority,
  portIsFree,
  prepareMachine,
  runningServers,
  scramVerifier,
  type ServiceSpec,
  signal,
  stopDatabases,
  type UidRange,
  createRounds,
  QUIET,
  TUNING,
} from './probe.ts';
import { until } from './until.ts';

const HOST = '127.0.0.1';
const FIRST_PASSWORD = 'first-password-of-the-suite';
const SNAPSHOT_EVERY_MS = 200;
const HOUR_MS = 3_600_000;

/** PostgreSQL's error of a table that does not exist. */
const NO_TABLE = '42P01';

export type LocalSubject = Subject & {
  readonly machine: Machine;
  /** Ends everything and removes it. @returns the servers that still ran */
  readonly destroy: () => Promise<string[]>;
};

/** @param uidRange the users of its services */
export async function createLocalSubject(uidRange?: UidRange): Promise<LocalSubject> {
  const [home, firstPort] = [await makeHome(), await claimPorts()];
  const machine = await prepareMachine(home, uidRange);
  const authority = await openCertificateAuthority(join(home, 'ca'));
  const rounds = createRounds(TUNING.rounds, QUIET);
  const egress = createEgress(machine, rounds, (error) => process.emitWarning(String(error)));
  await egress.start();
  const gateway = await gatewayCapability();
  let used = 0;
  const take = async (): Promise<number> => {
    used += 1;
    return firstPort + (used % PORTS);
  };
  const records = createMemoryRecords({ take });
  const changed = new Set<string>();
  const make = (): Engine =>
    createLocalEngine({
      machine,
      templates: createTemplates(machine),
      authority,
      endpointHost: HOST,
      listenAddress: HOST,
      repositories: { program: null, list: async () => [], open: () => null, known: () => [] },
      certificateHosts: certificateHosts(HOST, HOST),
      backups: { windowMs: HOUR_MS, snapshotEveryMs: SNAPSHOT_EVERY_MS, verifyEveryMs: HOUR_MS },
      asideMs: HOUR_MS,
      gateway,
      heartbeat: { everyMs: 500, deadlineMs: 1500 },
      failover: { cooldownMs: 60_000, lagLimitBytes: 16 * 1024 * 1024 },
      readLagLimit: { bytes: 64 * 1024 * 1024, seconds: 30 },
      records: records.store,
      egress,
      rounds,
      changed: (id) => void changed.add(id),
    });
  let engine = make();
  const newPort = () => newPortOf(engine, take);
  return {
    get engine() {
      return engine;
    },
    machine,
    records,
    changed,
    firstPassword: FIRST_PASSWORD,
    clientNetwork: '127.0.0.0/8',
    snapshotEveryMs: SNAPSHOT_EVERY_MS,
    newPort,
    listens: async (port) => !(await portIsFree(HOST, port)),
    newSpec: async () => newSpec(await newPort()),
    verifierOf: scramVerifier,
    canLogIn: (spec, password) => withClient(spec, password, async () => true).catch(() => false),
    insertRows: (spec, rows) =>
      withClient(spec, FIRST_PASSWORD, async (client) => {
        await client.query('create table if not exists suite (number integer)');
        await client.query('insert into suite select generate_series(1, $1::integer)', [rows]);
      }),
    countRows,
    wait,
    nowMs: async () => Date.now(),
    kill: async (id, node) => {
      const server = await findServer(machine.layout.member(id, node));
      if (server !== null) signal(server.postmaster.pid, 'SIGKILL');
    },
    loseData: (id) => takeAway(machine.layout, id),
    recreate: async () => {
      await engine.close();
      engine = make();
    },
    leftovers: async (id) => [
      ...(await readdir(machine.layout.services)).filter((name) => name.startsWith(id)),
      ...(await runningServers()).filter((data) => data.includes(id)),
      ...(await groupIds(machine.limits)).filter((key) => key.startsWith(id)),
    ],
    destroy: async () => {
      await engine.close().finally(() => void egress.close());
      return destroyHome(home, machine.layout.root);
    },
  };
}

/** The pace of the suite, which asks other engines for a clock of their own. */
async function wait(ms: number): Promise<void> {
  const endMs = performance.now() + ms;
  await until(`${ms} ms are over`, () => performance.now() >= endMs);
}

/** Moves all of a service away. @returns a function that brings it back */
async function takeAway(layout: Layout, id: string): Promise<() => Promise<void>> {
  const { root } = layout.service(id);
  const away = join(layout.root, `lost-${id}`);
  await rename(root, away);
  return () => rename(away, root);
}

/** @returns the servers that still run */
async function destroyHome(home: string, root: string): Promise<string[]> {
  await stopDatabases(home, () => undefined);
  const running = (await runningServers()).filter((data) => data.startsWith(root));
  const data = await readlink(join(home, 'data')).catch(() => join(home, 'data'));
  // The next clone of a template may still be made there.
  await rm(data, { recursive: true, force: true, maxRetries: 10 });
  await rm(home, { recursive: true, force: true });
  return running;
}

async function newSpec(port: number): Promise<ServiceSpec> {
  return {
    id: newId(),
    addons: [],
    major: null,
    preload: [],
    extension: null,
    size: { cpuMillis: 500, memoryGbs: 2 },
    storageGb: 10,
    restarts: 0,
    provisioned: false,
    power: 'running',
    endpoint: { host: HOST, port },
    projectId: null,
    firstVerifier: await scramVerifier(FIRST_PASSWORD),
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

async function withClient<T>(
  { endpoint }: ServiceSpec,
  password: string,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const client = new Client({
    ...endpoint,
    user: 'tsdbadmin',
    database: 'tsdb',
    password,
    ssl: { rejectUnauthorized: false },
    connectionTimeoutMillis: 30_000,
  });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return await use(client);
  } finally {
    await client.end();
  }
}

async function countRows(spec: ServiceSpec): Promise<number> {
  try {
    return await withClient(spec, FIRST_PASSWORD, async (client) => {
      const { rows } = await client.query<{ count: number }>(
        'select count(*)::integer as count from suite',
      );
      return rows[0]?.count ?? 0;
    });
  } catch (error) {
    if (error instanceof DatabaseError && error.code === NO_TABLE) return 0;
    throw error;
  }
}

const newPortOf = async ({ addresses }: Engine, take: () => Promise<number>): Promise<number> =>
  (await addresses.reserve({ take }, { id: newId(), poolerOf: null })).port;
