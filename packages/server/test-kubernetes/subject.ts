/** The engine for Kubernetes with real PostgreSQL, as a subject of the conformance suite. */
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client, DatabaseError } from 'pg';
import { Type } from 'typebox';
import type { Placement, Size } from '@howdah/contract';
import {
  type Engine,
  newId,
  type ObjectStore,
  openCertificateAuthority,
  scramVerifier,
  type ServiceSpec,
  createRounds,
  QUIET,
  TUNING,
} from '../test/probe.ts';
import { hasPlugin, poolerImage } from './cloud.ts';
import type { Api } from './operator/api.ts';
import { CLUSTERS, pathIn } from './operator/cluster.ts';
import {
  createKubernetesEngine,
  createMemoryLogs,
  createMemoryRecords,
  type MemoryLogs,
  namespaceOf,
  podOf,
  type Subject,
} from './probe.ts';
import type { Rig } from './rig.ts';
import { atMoment, until } from '../test/until.ts';

const FIRST_PASSWORD = 'first-password-of-the-suite';
/** PostgreSQL's error of a table that does not exist. */
const NO_TABLE = '42P01';
export const MAJOR = 17;

const SNAPSHOT_EVERY_MS = 1000;
/** Logs are kept every two seconds. */
const makeRounds = () => createRounds({ ...TUNING.rounds, keptLogs: { everyMs: 2000 } }, QUIET);
const BACKUPS = { windowMs: 7 * 86_400_000, snapshotEveryMs: SNAPSHOT_EVERY_MS };

/** A region with ports, and images without extensions. */
const PORTS = { domain: null, boundsCpu: false, extensions: {} };
/** Any server has a port. */
const ANY = { id: newId(), poolerOf: null };

/** The ports of suites; the journey's region has others. */
const FIRST_PORT = 31_000;
let used = 0;
const take = async (): Promise<number> => {
  used += 1;
  return FIRST_PORT + used;
};

/** Another user, another database or no TLS for a session. */
export type Session = Readonly<{ user?: string; database?: string; ssl?: false }>;

export type KubernetesSubject = Subject & {
  readonly projectId: string;
  /** The server logs that are kept. */
  readonly logs: MemoryLogs;
  /** Sets the object store of the region. */
  readonly keepIn: (store: ObjectStore) => void;
  /** Runs work with a session at the endpoint; default: of tsdbadmin, with the first password. */
  readonly withClient: <T>(
    spec: Pick<ServiceSpec, 'endpoint'>,
    work: (client: Client) => Promise<T>,
    password?: string,
    session?: Session,
  ) => Promise<T>;
  readonly destroy: () => Promise<void>;
};

/** Many of them fit on the node, and none waits for CPU time that others do not use. */
const SHARED: Size = 'shared';

type SubjectOptions = Readonly<{
  image?: string;
  pooler?: string;
  size?: Size;
  /** The object store of the region; null: it has none. */
  store?: ObjectStore | null;
  /** Where its pods run; default: anywhere. */
  placement?: Placement;
  /** The storage class of a volume for WAL; null: WAL is with the data. */
  walStorageClass?: string | null;
}>;

const settingsOf = (rig: Rig, options: SubjectOptions) => ({
  host: rig.host,
  ...PORTS,
  storageClass: rig.storageClass,
  images: { [MAJOR]: options.image ?? rig.image },
  poolerImage: options.pooler ?? poolerImage(),
  placementOf: () => options.placement ?? {},
  walStorageClass: options.walStorageClass ?? null,
  imagePull: null,
});

export async function createKubernetesSubject(
  rig: Rig,
  api: Api,
  options: SubjectOptions = {},
): Promise<KubernetesSubject> {
  const { size = SHARED, store = null } = options;
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const authority = await openCertificateAuthority(directory);
  const [projectId, changed] = [newId(), new Set<string>()];
  const settings = {
    code: `suite-${projectId}`,
    ...settingsOf(rig, options),
  };
  const [records, logs] = [createMemoryRecords({ take }), createMemoryLogs()];
  const make = (): Engine =>
    createKubernetesEngine({
      settings,
      connection: rig.connection,
      mayWrite: () => true,
      authority,
      records: records.store,
      keptLogs: logs.store,
      rounds: makeRounds(),
      backups: BACKUPS,
      readLagLimit: { bytes: 64 * 1024 * 1024, seconds: 30 },
      objectStore: () => stored,
      changed: (id) => void changed.add(id),
      failed: (error) => process.emitWarning(String(error)),
    });
  let stored = store;
  let engine = make();
  const withClient = clientsOf(authority.certificatePem);
  return {
    get engine() {
      return engine;
    },
    projectId,
    keepIn: (next) => {
      stored = next;
    },
    withClient: (spec, work, password = FIRST_PASSWORD, session = {}) =>
      withClient(spec, password, work, session),
    records,
    logs,
    changed,
    firstPassword: FIRST_PASSWORD,
    clientNetwork: `${rig.machineHost}/32`,
    snapshotEveryMs: SNAPSHOT_EVERY_MS,
    newPort: async () => (await engine.addresses.reserve({ take }, ANY)).port,
    listens: (port) => listens(rig.host, port),
    newSpec: async () => newSpec(projectId, { host: rig.host, port: await take() }, size),
    verifierOf: scramVerifier,
    canLogIn: (spec, password) => withClient(spec, password, async () => true).catch(() => false),
    insertRows: (spec, rows) =>
      withClient(spec, FIRST_PASSWORD, (client) => insertRows(client, rows)),
    countRows: (spec) => withClient(spec, FIRST_PASSWORD, countRows),
    wait: atMoment,
    nowMs: async () => Date.now(),
    kill: async (id, node) => {
      await api.remove(pathIn(namespaceOf(projectId), 'pods', podOf(id, node)), 0);
      await until('the pod is gone', async () => !(await isRunning(engine, id, node)));
    },
    loseData: async () => {
      throw new Error('volumes do not come back');
    },
    recreate: async () => {
      await engine.close();
      engine = make();
    },
    leftovers: (id) => leftoversOf(api, id),
    destroy: async () => {
      await engine.close();
      await api.remove(`/api/v1/namespaces/${namespaceOf(projectId)}`);
      await rm(directory, { recursive: true });
    },
  };
}

async function isRunning({ observe }: Engine, id: string, node: number): Promise<boolean> {
  const servers = await observe.servers(id);
  return servers.some((server) => server.node === node && server.state === 'running');
}

async function newSpec(
  projectId: string,
  endpoint: ServiceSpec['endpoint'],
  size: Size,
): Promise<ServiceSpec> {
  return {
    id: newId(),
    projectId,
    addons: [],
    major: MAJOR,
    preload: [],
    extension: null,
    size,
    storageGb: 10,
    restarts: 0,
    provisioned: false,
    power: 'running',
    endpoint,
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

/** @param ca of the certificate that a server must have, for the host of its endpoint */
function clientsOf(ca: string) {
  return async <T>(
    { endpoint }: Pick<ServiceSpec, 'endpoint'>,
    password: string,
    use: (client: Client) => Promise<T>,
    session: Session = {},
  ): Promise<T> => {
    const client = new Client({
      ...endpoint,
      user: 'tsdbadmin',
      database: 'tsdb',
      password,
      ssl: { ca, rejectUnauthorized: true },
      ...session,
      // A session that reached a server which has just ended hears nothing.
      connectionTimeoutMillis: 10_000,
      // A server that is gone may send nothing more.
      query_timeout: 60_000,
    });
    client.on('error', () => undefined);
    try {
      await client.connect();
      return await use(client);
    } finally {
      await client.end();
    }
  };
}

async function insertRows(client: Client, rows: number): Promise<void> {
  await client.query('create table if not exists suite (number integer)');
  await client.query('insert into suite select generate_series(1, $1::integer)', [rows]);
}

async function countRows(client: Client): Promise<number> {
  try {
    const { rows } = await client.query<{ count: number }>(
      'select count(*)::integer as count from suite',
    );
    return rows[0]?.count ?? 0;
  } catch (error) {
    if (error instanceof DatabaseError && error.code === NO_TABLE) return 0;
    throw error;
  }
}

async function listens(host: string, port: number): Promise<boolean> {
  const socket = connect({ host, port, timeout: 5000 });
  try {
    return await new Promise((resolve) => {
      socket.once('connect', () => resolve(true));
      socket.once('error', () => resolve(false)).once('timeout', () => resolve(false));
    });
  } finally {
    socket.destroy();
  }
}

const NAMED = Type.Object({ metadata: Type.Object({ name: Type.String() }) });
const KINDS = ['pods', 'services', 'secrets', 'configmaps', 'persistentvolumeclaims'];

export const SNAPSHOTS = '/apis/snapshot.storage.k8s.io/v1/volumesnapshots';

/** The names of all objects of a service. */
async function leftoversOf(api: Api, id: string): Promise<string[]> {
  const paths = [
    ...KINDS.map((kind) => `/api/v1/${kind}`),
    ...['deployments', 'replicasets'].map((kind) => `/apis/apps/v1/${kind}`),
    `${CLUSTERS}/clusters`,
    `${CLUSTERS}/backups`,
    ...(hasPlugin ? ['/apis/barmancloud.cnpg.io/v1/objectstores'] : []),
    SNAPSHOTS,
  ];
  const listed = await Promise.all(paths.map((path) => api.list(path, NAMED)));
  return listed
    .flat()
    .map(({ metadata }) => metadata.name)
    .filter((name) => name.includes(id));
}
