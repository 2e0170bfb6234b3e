/**
 * Two APIs on one metadata database, and calls that are made of both at the same time. The calls
 * are in races.ts.
 */
import { BASE_PATH } from '@howdah/contract';
import { sql } from 'kysely';
import { Client, type ClientConfig } from 'pg';
import { ROUTES } from './document.ts';
import type { Installation } from './harness.ts';
import {
  insertKey,
  insertProject,
  insertRegion,
  LOCAL_REGION,
  newId,
  openStore,
  type OperationRow,
  prepareMachine,
  sha256,
  storeConnection,
  createRounds,
  QUIET,
  TUNING,
} from './probe.ts';
import { createRaceEngine, openRaceApi, PORTS, type Plant, type RaceApi } from './race-api.ts';
import { FIRST_PORT, lay, removeFrom, type Ground, type Laid } from './race-services.ts';
import { EXPORTER_ID, LIST_ID, type Call, type Slot, type World } from './race-world.ts';
import { type Ending } from './race-endings.ts';
import { until } from './until.ts';

const SLOTS = ['one', 'two'] as const;
/** The equipment of races: the metadata, sessions on it, and the two APIs. */
type Track = Ground & {
  database: string;
  key: string;
  /**
   * The session that creates and removes the database; one that holds locks; one that reads who
   * waits for them.
   */
  admin: Client;
  holder: Client;
  watcher: Client;
  apis: Record<Slot, RaceApi>;
};
/** An answer of an API. */
type Answer = Awaited<ReturnType<RaceApi['app']['inject']>>;

/** @param plant a defect in both APIs */
export async function openTrack(cloud: Installation, plant: Plant = null) {
  const own = storeConnection(await prepareMachine(cloud.home));
  const database = `races_${newId()}`;
  const admin = await connect(own);
  await admin.query(`create database ${database}`);
  // Thousands of pairs, and nothing that has to outlive a crash.
  await admin.query(`alter database ${database} set synchronous_commit = off`);
  const connection = { ...own, database };
  const store = await openStore(connection, createRounds(TUNING.rounds, QUIET), () => undefined);
  const { db } = store;
  const [projectId, publicKey, secret] = [newId(), `HD${newId()}${newId()}`, newId()];
  await insertRegion(db, LOCAL_REGION, PORTS[0]);
  await insertProject(db, { id: projectId, name: 'races' });
  await insertKey(db, {
    publicKey,
    secretHash: sha256(secret),
    projectId,
    name: 'racer',
    role: 'admin',
  });
  await sql`insert into vpcs (project_id, region_code, name, cidr, made)
    values (${projectId}, ${LOCAL_REGION}, 'races', '10.1.0.0/16', 1)`.execute(db);
  await sql`insert into allow_lists (id, project_id, description, cidr_blocks)
    values (${LIST_ID}, ${projectId}, 'races', '{10.2.0.0/16}')`.execute(db);
  await sql`insert into exporters (id, project_id, region_code, name, type, config)
    values (${EXPORTER_ID}, ${projectId}, ${LOCAL_REGION}, 'races', 'PROMETHEUS_METRICS',
            '{}')`.execute(db);
  const [holder, watcher] = [await connect(connection), await connect(connection)];
  const engine = createRaceEngine();
  const open = (slot: Slot) =>
    openRaceApi({ ...connection, application_name: nameOf(slot) }, engine, plant);
  const apis = { one: await open('one'), two: await open('two') };
  const track: Track = {
    store,
    engine,
    database,
    projectId,
    key: `${publicKey}:${secret}`,
    admin,
    holder,
    watcher,
    apis,
    lastPort: FIRST_PORT,
  };
  return {
    race: (world: World, calls: Record<Slot, Call>) => race(track, world, calls),
    close: () => close(track),
  };
}

async function ask(
  track: Track,
  slot: Slot,
  { operationId, body, needs, query = '' }: Call,
  laid: Laid,
): Promise<Answer> {
  const { projectId, key, apis } = track;
  const route = ROUTES.find((candidate) => candidate.operationId === operationId);
  if (route === undefined) throw new Error(`no operation is called ${operationId}`);
  const target = (needs === 'verification' ? laid.verificationId : laid.operationId) ?? newId();
  const path = route.path
    .replace('{project_id}', projectId)
    .replace('{service_id}', laid.id)
    .replace('{extension_name}', 'pgstattuple')
    .replace('{replica_set_id}', laid.setId ?? newId())
    .replace('{operation_id}', target);
  return apis[slot].app.inject({
    method: route.method,
    url: `${BASE_PATH}${path}${query}`,
    headers: { authorization: `Bearer ${key}` },
    ...(body === undefined ? {} : { payload: body(slot) }),
  });
}

/** Whether an API waits for somebody's lock. */
async function waits({ watcher }: Track, slot: Slot): Promise<boolean> {
  const { rowCount } = await watcher.query(
    'select from pg_stat_activity where datname = current_database() ' +
      "and application_name = $1 and wait_event_type = 'Lock'",
    [nameOf(slot)],
  );
  return (rowCount ?? 0) > 0;
}

/**
 * Makes two calls at the same time: both have come to where the service is locked, the first one
 * first, before either goes on.
 *
 * @returns how it ended
 */
async function race(track: Track, world: World, calls: Record<Slot, Call>): Promise<Ending> {
  const { holder, store } = track;
  const laid = await lay(track, world);
  await holder.query('begin');
  await holder.query('select from services where id = $1 for update', [laid.id]);
  const answers = new Map<Slot, Answer>();
  const asking: Promise<unknown>[] = [];
  for (const slot of SLOTS) {
    asking.push(ask(track, slot, calls[slot], laid).then((answer) => answers.set(slot, answer)));
    await until(
      `call ${slot} waits at the lock`,
      async () => answers.has(slot) || (await waits(track, slot)),
    );
  }
  await holder.query('commit');
  // An answer that waits for its pooler would wait for ever: nobody makes it.
  const poolers = () => poolerChanges(track, laid);
  await until(
    'both calls end',
    async () => answers.size === 2 || (await poolers()).length >= 2 - answers.size,
  );
  const ended = await read(track, laid);
  const waiting = await poolers();
  if (waiting.length > 0)
    await store.db
      .updateTable('operations')
      .set({ error: 'nobody makes it' })
      .where('id', 'in', waiting)
      .execute();
  await Promise.all(asking);
  const told = {
    one: await toldBy(track, answers.get('one'), laid),
    two: await toldBy(track, answers.get('two'), laid),
  };
  await clear(track, laid);
  return { answers: told, ...ended };
}

/**
 * Ids of changes of a pooler that have begun after a service was laid out, and that nobody makes.
 */
async function poolerChanges({ store }: Track, { operationId }: Laid): Promise<string[]> {
  const rows = await store.db
    .selectFrom('operations')
    .select('id')
    .where('kind', 'in', ['enablePooler', 'disablePooler'])
    .where('finished', 'is', null)
    .execute();
  return rows.map(({ id }) => id).filter((id) => id !== operationId);
}

async function toldBy({ store }: Track, answer: Answer | undefined, laid: Laid): Promise<string> {
  if (answer === undefined) return 'none';
  if (answer.statusCode >= 400) {
    const body: unknown = answer.json();
    return `${answer.statusCode} ${String(Reflect.get(Object(body), 'code'))}`;
  }
  const id = answer.headers['operation-id'];
  if (typeof id !== 'string') return `${answer.statusCode} nothing to do`;
  const row = await store.db
    .selectFrom('operations')
    .select('kind')
    .where('id', '=', id)
    .executeTakeFirst();
  return `${answer.statusCode} ${row?.kind ?? `an operation that is not there, of ${laid.id}`}`;
}

async function read({ store }: Track, laid: Laid): Promise<Omit<Ending, 'answers'>> {
  const { db } = store;
  const rows = await db
    .selectFrom('services')
    .selectAll()
    .orderBy('created')
    .orderBy('id')
    .execute();
  const service = rows.find(({ id }) => id === laid.id);
  if (service === undefined) throw new Error('the service is gone');
  const sets = rows.filter(({ parent_id: parent }) => parent === laid.id);
  const onWhat = (id: string): string => {
    const set = sets.findIndex((one) => one.id === id);
    return id === laid.id ? 'service' : set === -1 ? 'fork' : set === 0 ? 'set' : 'set 2';
  };
  const operations = await db.selectFrom('operations').selectAll().execute();
  const audited = await db.selectFrom('audit_log').select('id').where('code', 'is', null).execute();
  return {
    service: {
      status: service.status,
      power: service.power,
      deleting: service.deleting,
      deleted: service.deleted_at !== null,
      // A deleted service belongs to nobody from then on.
      purged: service.purge || service.project_id === null,
      name: service.name,
      environment: service.environment,
      cpuMillis: service.cpu_millis,
      replicas: service.replica_count,
      pooler: service.pooler,
      inVpc: service.vpc_id !== null,
      hasList: service.allow_list_id !== null,
      hasExporter: service.metric_exporter_id !== null,
      hasRetention: service.backup_retention_days !== null,
    },
    sets: sets.map((set) => ({
      status: set.status,
      power: set.power,
      deleting: set.deleting,
      environment: set.environment,
      cpuMillis: set.cpu_millis,
      pooler: set.pooler,
      inVpc: set.vpc_id !== null,
      hasList: set.allow_list_id !== null,
    })),
    operations: operations
      .map((one) => `${onWhat(one.service_id)} ${one.kind} ${howItEnded(one)}`)
      .toSorted(),
    audited: audited.length,
  };
}

async function clear({ holder, engine }: Track, { id }: Laid): Promise<void> {
  await removeFrom(engine, id);
  await holder.query('begin');
  await holder.query(
    'delete from vpc_addresses; delete from services where parent_id is not null; delete ' +
      'from services; delete from operations; delete from audit_log where code is null',
  );
  await holder.query('commit');
}

async function close(track: Track): Promise<void> {
  const { admin, apis, database, holder, store, watcher } = track;
  await Promise.all([apis.one.close(), apis.two.close()]);
  await Promise.all([holder.end(), watcher.end(), store.close()]);
  // A pool has ended before its sessions have; one that the server ended would be an error of the
  // run.
  const sessions = 'select from pg_stat_activity where datname = $1';
  await until(
    'all sessions have ended',
    async () => (await admin.query(sessions, [database])).rowCount === 0,
  );
  await admin.query(`drop database ${database}`);
  await admin.end();
}

const nameOf = (slot: Slot): string => `api ${slot}`;

function howItEnded({ status, error }: OperationRow): string {
  if (error?.startsWith('cancelled by ') === true) return 'failed cancelled';
  return error === null ? status : `${status} ${error}`;
}

async function connect(connection: ClientConfig): Promise<Client> {
  const client = new Client({ ...connection, application_name: 'race track' });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}
