/** The services that calls race for, made as a world says, with a server in the engine's memory. */
import {
  beginOperation,
  changeService,
  type Engine,
  insertService,
  LOCAL_REGION,
  networkColumnsOf,
  type OperationRow,
  progressOperation,
  type ServiceRow,
  serviceSpec,
  type Store,
  type Tx,
} from './probe.ts';
import { EXPORTER_ID, LIST_ID, VPC_ID, type World } from './race-world.ts';

/** Ports of the services that are raced for: the engine hands out none of these. */
export const FIRST_PORT = 1_000_000;

/** Where services are made, in which project, and the last port that one has. */
export type Ground = { store: Store; engine: Engine; projectId: string; lastPort: number };

const COMMON = {
  region: LOCAL_REGION,
  addons: [],
  major: null,
  origin: null,
} as const;

const nextEndpoint = (ground: Ground) => ({ host: '127.0.0.1', port: ++ground.lastPort });

/** Makes a service that is as a world says. */
export async function lay(ground: Ground, world: World) {
  const { row, ...laid } = await layRows(ground, world);
  await runIn(ground.engine, row);
  return laid;
}

/** Runs the server of a service, so that it takes a password. */
async function runIn({ lifecycle }: Engine, row: ServiceRow): Promise<void> {
  const server = { ...serviceSpec(row), power: 'running', ha: null, pooler: null } as const;
  while ((await lifecycle.converge(server, async () => undefined)).outcome !== 'settled');
}

export async function removeFrom({ lifecycle }: Engine, id: string): Promise<void> {
  while ((await lifecycle.remove(id, null, async () => undefined)).outcome !== 'settled');
}

function layRows(ground: Ground, world: World) {
  const { projectId } = ground;
  return ground.store.db.transaction().execute(async (tx) => {
    const size = { cpuMillis: world.cpuMillis, memoryGbs: 2 };
    const fresh = await insertService(tx, { ...COMMON, size, endpoint: nextEndpoint(ground) });
    const owned = { id: fresh.id, project_id: projectId };
    const operation = world.operation === null ? null : await underWay(tx, owned, world.operation);
    const shared = { project_id: projectId, created: new Date(), environment: world.environment };
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
        has_gateway: true,
        ...(world.pooler ? { pooler: true, pooler_port: ++ground.lastPort } : {}),
        ...(world.inVpc ? { vpc_id: VPC_ID } : {}),
        ...(world.hasExporter ? { metric_exporter_id: EXPORTER_ID } : {}),
        ...(world.hasList ? { allow_list_id: LIST_ID } : {}),
        ...(world.hasRetention ? { backup_retention_days: 30 } : {}),
        ...(world.inVpc || world.hasList ? { allowed_networks: [] } : {}),
      },
      operation,
    );
    const verification =
      world.verification === null ? null : await underWay(tx, owned, world.verification);
    const setId = await laySets(tx, ground, world, row);
    return {
      row,
      id: row.id,
      setId,
      operationId: operation?.id ?? null,
      verificationId: verification?.id ?? null,
    };
  });
}

/**
 * Makes the read replica sets of a service that is as a world says. @returns the id of the last one
 */
async function laySets(
  tx: Tx,
  ground: Ground,
  { sets }: World,
  row: ServiceRow,
): Promise<string | null> {
  let setId: string | null = null;
  for (const set of sets) {
    const spare = await insertService(tx, {
      ...COMMON,
      size: { cpuMillis: set.cpuMillis, memoryGbs: 1 },
      endpoint: nextEndpoint(ground),
      parent: row.id,
    });
    const { power, reachable, environment } = set;
    const pooler = set.pooler ? { pooler: true, pooler_port: ++ground.lastPort } : {};
    const made = {
      project_id: ground.projectId,
      created: new Date(),
      name: 'set',
      power,
      reachable,
      environment,
      nodes: 1,
      deleted_at: row.deleted_at,
      ...pooler,
      ...networkColumnsOf(row),
    };
    setId = (await changeService(tx, spare, made, null)).id;
  }
  return setId;
}

export type Laid = Awaited<ReturnType<typeof lay>>;

async function underWay(
  tx: Tx,
  service: { id: string; project_id: string },
  operation: NonNullable<World['operation']>,
): Promise<OperationRow> {
  const begun = await beginOperation(tx, service, operation.kind, 'test', null);
  return operation.begun ? progressOperation(tx, begun.id, [], null) : begun;
}
