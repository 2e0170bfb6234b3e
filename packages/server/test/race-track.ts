/** Two API processes on one set of metadata, and calls that are made of both at the same time. What is asked is in races.ts. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { BASE_PATH } from '@howdah/contract';
import { sql } from 'kysely';
import { Client, type ClientConfig } from 'pg';
import { newId } from '../src/lib/ids.ts';
import { prepareMachine } from '../src/engine/local/host/machine.ts';
import { storeConnection } from '../src/engine/local/postgres/store-instance.ts';
import { sha256 } from '../src/lib/secret.ts';
import { LOCAL_REGION } from '../src/services/regions.ts';
import { openStore } from '../src/store/database.ts';
import type { Tx } from '../src/store/tables.ts';
import { insertKey } from '../src/store/keys.ts';
import type { OperationRow } from '../src/domain/operation/row.ts';
import { beginOperation, progressOperation } from '../src/store/operations.ts';
import { insertProject } from '../src/store/projects.ts';
import { vpcColumnsOf } from '../src/domain/service/spec.ts';
import { insertRegion } from '../src/store/regions.ts';
import { changeService } from '../src/store/services.ts';
import { insertSpare } from '../src/store/spares.ts';
import type { ApiOrder } from './api-process.ts';
import { ROUTES } from './document.ts';
import type { Installation } from './harness.ts';
import { VPC_ID, type Call, type Ending, type Slot, type World } from './races.ts';

const SLOTS = ['one', 'two'] as const;
const PORTS: ApiOrder['portRange'] = [20_000, 29_999];
/** Of the services that are raced for: none that is handed out. */
const FIRST_PORT = 1_000_000;

/** @param plant a defect in both processes */
export async function openTrack(cloud: Installation, plant: ApiOrder['plant'] = null) {
  const own = storeConnection(await prepareMachine(cloud.home));
  const database = `races_${newId()}`;
  const admin = await connect(own);
  await admin.query(`create database ${database}`);
  // Thousands of pairs, and nothing that has to outlive a crash.
  await admin.query(`alter database ${database} set synchronous_commit = off`);
  const connection = { ...own, database };
  const store = await openStore(connection, () => undefined);
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
  await sql`insert into vpcs (project_id, region_code, name, cidr, made) values (${projectId}, ${LOCAL_REGION}, 'races', '10.1.0.0/16', 1)`.execute(
    db,
  );
  const [holder, watcher] = [await connect(connection), await connect(connection)];
  const children = {
    one: startApi(connection, 'one', plant),
    two: startApi(connection, 'two', plant),
  };
  const ports = { one: await children.one.port, two: await children.two.port };
  let lastPort = FIRST_PORT;

  /** Makes a service that is as a world says. */
  const lay = (world: World) =>
    db.transaction().execute(async (tx) => {
      const common = {
        region: LOCAL_REGION,
        serviceType: 'POSTGRES',
        addons: [],
        host: '127.0.0.1',
        origin: null,
      } as const;
      const size = { cpuMillis: world.cpuMillis, memoryGbs: 2 };
      const fresh = await insertSpare(tx, { ...common, size, port: ++lastPort });
      const owned = { id: fresh.id, project_id: projectId };
      const operation =
        world.operation === null ? null : await underWay(tx, owned, world.operation);
      const shared = { project_id: projectId, created: new Date(), environment: world.environment };
      const members = Array.from({ length: world.replicas + 1 }, (_, n) => ({
        n,
        port: ++lastPort,
      }));
      const row = await changeService(
        tx,
        fresh,
        {
          ...shared,
          name: world.name,
          power: world.power,
          reachable: world.reachable,
          deleting: world.deleting,
          deleted_at: world.deleted ? new Date() : null,
          replica_count: world.replicas,
          members,
          ...(world.pooler ? { pooler: true, pooler_port: ++lastPort } : {}),
          ...(world.inVpc ? { vpc_id: VPC_ID, allowed_networks: [] } : {}),
        },
        operation,
      );
      const verification =
        world.verification === null ? null : await underWay(tx, owned, world.verification);
      let setId: string | null = null;
      for (const set of world.sets) {
        const spare = await insertSpare(tx, {
          ...common,
          size: { cpuMillis: set.cpuMillis, memoryGbs: 1 },
          port: ++lastPort,
          parent: row.id,
        });
        const { power, reachable, environment } = set;
        const pooler = set.pooler ? { pooler: true, pooler_port: ++lastPort } : {};
        const nodes = [{ n: 1, port: ++lastPort }];
        const made = {
          ...shared,
          name: 'set',
          power,
          reachable,
          environment,
          members: nodes,
          deleted_at: row.deleted_at,
          ...pooler,
          ...vpcColumnsOf(row),
        };
        setId = (await changeService(tx, spare, made, null)).id;
      }
      return {
        id: row.id,
        setId,
        operationId: operation?.id ?? null,
        verificationId: verification?.id ?? null,
      };
    });

  type Laid = Awaited<ReturnType<typeof lay>>;

  const ask = async (
    slot: Slot,
    { operationId, body, needs, query = '' }: Call,
    laid: Laid,
  ): Promise<Response> => {
    const route = ROUTES.find((candidate) => candidate.operationId === operationId);
    if (route === undefined) throw new Error(`no operation is called ${operationId}`);
    const target = (needs === 'verification' ? laid.verificationId : laid.operationId) ?? newId();
    const path = route.path
      .replace('{project_id}', projectId)
      .replace('{service_id}', laid.id)
      .replace('{replica_set_id}', laid.setId ?? newId())
      .replace('{operation_id}', target);
    const json = body === undefined ? {} : { body: JSON.stringify(body(slot)) };
    return fetch(`http://127.0.0.1:${ports[slot]}${BASE_PATH}${path}${query}`, {
      method: route.method,
      headers: {
        Authorization: `Bearer ${publicKey}:${secret}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      },
      ...json,
    });
  };

  /** Whether a process waits for somebody's lock. */
  const waits = async (slot: Slot): Promise<boolean> =>
    ((
      await watcher.query(
        "select from pg_stat_activity where datname = current_database() and application_name = $1 and wait_event_type = 'Lock'",
        [nameOf(slot)],
      )
    ).rowCount ?? 0) > 0;

  /** Waits until a condition holds. */
  const until = async (
    condition: () => boolean | Promise<boolean>,
    what: string,
  ): Promise<void> => {
    for (const endMs = Date.now() + DEADLINE_MS; !(await condition()); await sleep(POLL_MS))
      if (Date.now() > endMs) throw new Error(`${what} does not come about`);
  };

  /**
   * Makes two calls at the same time: both have come to where the service is locked, the first one first, before either goes on.
   *
   * @returns how it ended
   */
  const race = async (world: World, calls: Record<Slot, Call>): Promise<Ending> => {
    const laid = await lay(world);
    await holder.query('begin');
    await holder.query('select from services where id = $1 for update', [laid.id]);
    const answers = new Map<Slot, Response>();
    const asking: Promise<unknown>[] = [];
    for (const slot of SLOTS) {
      asking.push(ask(slot, calls[slot], laid).then((answer) => answers.set(slot, answer)));
      await until(async () => answers.has(slot) || (await waits(slot)), `call ${slot} at the lock`);
    }
    await holder.query('commit');
    // An answer that waits for its pooler would wait for ever: nobody makes it.
    const poolers = async () =>
      (
        await db
          .selectFrom('operations')
          .select('id')
          .where('kind', 'in', ['enablePooler', 'disablePooler'])
          .where('finished', 'is', null)
          .execute()
      )
        .map(({ id }) => id)
        .filter((id) => id !== laid.operationId);
    await until(
      async () => answers.size === 2 || (await poolers()).length >= 2 - answers.size,
      'the end of both calls',
    );
    const ended = await read(laid);
    const waiting = await poolers();
    if (waiting.length > 0)
      await db
        .updateTable('operations')
        .set({ error: 'nobody makes it' })
        .where('id', 'in', waiting)
        .execute();
    await Promise.all(asking);
    const told = {
      one: await toldBy(answers.get('one'), laid),
      two: await toldBy(answers.get('two'), laid),
    };
    await clear();
    return { answers: told, ...ended };
  };

  const toldBy = async (answer: Response | undefined, laid: Laid): Promise<string> => {
    if (answer === undefined) return 'none';
    if (!answer.ok) {
      const body: unknown = await answer.json();
      return `${answer.status} ${String(Reflect.get(Object(body), 'code'))}`;
    }
    await answer.arrayBuffer();
    const id = answer.headers.get('Operation-Id');
    if (id === null) return `${answer.status} nothing to do`;
    const row = await db
      .selectFrom('operations')
      .select('kind')
      .where('id', '=', id)
      .executeTakeFirst();
    return `${answer.status} ${row?.kind ?? `an operation that is not there, of ${laid.id}`}`;
  };

  const read = async (laid: Laid): Promise<Omit<Ending, 'answers'>> => {
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
    const audited = await db
      .selectFrom('audit_log')
      .select('id')
      .where('code', 'is', null)
      .execute();
    return {
      service: {
        status: service.status,
        power: service.power,
        deleting: service.deleting,
        deleted: service.deleted_at !== null,
        // One that was deleted belongs to nobody from then on.
        purged: service.purge || service.project_id === null,
        name: service.name,
        environment: service.environment,
        cpuMillis: service.cpu_millis,
        replicas: service.replica_count,
        pooler: service.pooler,
        inVpc: service.vpc_id !== null,
      },
      sets: sets.map((set) => ({
        status: set.status,
        power: set.power,
        deleting: set.deleting,
        environment: set.environment,
        cpuMillis: set.cpu_millis,
        pooler: set.pooler,
        inVpc: set.vpc_id !== null,
      })),
      operations: operations
        .map((one) => `${onWhat(one.service_id)} ${one.kind} ${howItEnded(one)}`)
        .toSorted(),
      audited: audited.length,
    };
  };

  const clear = async (): Promise<void> => {
    await holder.query('begin');
    await holder.query(
      'delete from services where parent_id is not null; delete from services; delete from operations; delete from audit_log where code is null',
    );
    await holder.query('commit');
  };

  const close = async (): Promise<void> => {
    for (const { child } of [children.one, children.two]) {
      const ended = once(child, 'exit');
      child.disconnect();
      await ended;
    }
    await Promise.all([holder.end(), watcher.end(), store.close()]);
    await admin.query(`drop database ${database} with (force)`);
    await admin.end();
  };

  return { race, close };
}

const DEADLINE_MS = 60_000;
const POLL_MS = 3;
const nameOf = (slot: Slot): string => `api ${slot}`;

function howItEnded({ status, error }: OperationRow): string {
  if (error?.startsWith('cancelled by ') === true) return 'failed cancelled';
  return error === null ? status : `${status} ${error}`;
}

async function underWay(
  tx: Tx,
  service: { id: string; project_id: string },
  operation: NonNullable<World['operation']>,
): Promise<OperationRow> {
  const begun = await beginOperation(tx, service, operation.kind, 'test', null);
  return operation.begun ? progressOperation(tx, begun.id, [], null) : begun;
}

async function connect(connection: ClientConfig): Promise<Client> {
  const client = new Client({ ...connection, application_name: 'race track' });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

function startApi(
  connection: ClientConfig,
  slot: Slot,
  plant: ApiOrder['plant'],
): { child: ChildProcess; port: Promise<number> } {
  const child = fork(join(import.meta.dirname, 'api-process.ts'), {
    execArgv: ['--import', 'tsx'],
  });
  const order: ApiOrder = {
    connection: { ...connection, application_name: nameOf(slot) },
    portRange: PORTS,
    plant,
  };
  child.send(order);
  const port = once(child, 'message').then(([message]) =>
    Number(Reflect.get(Object(message), 'port')),
  );
  return { child, port };
}
