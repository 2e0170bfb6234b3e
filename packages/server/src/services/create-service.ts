/** Creates services. */
import {
  type Addon,
  ADDONS_OF_TYPE,
  ApiError,
  type CreateServiceBody,
  DEFAULT_SIZE,
  defaultStorageGb,
  type Size,
  typeOfAddons,
} from '@howdah/contract';
import type { ServiceRow } from '../domain/service/row.ts';
import type { Origin } from '../engine/spec.ts';
import { newPassword } from '../lib/ids.ts';
import { scramVerifier } from '../lib/scram.ts';
import { type Caller, makeChange } from './change.ts';
import {
  refuseFullDisk,
  refuseSecondProject,
  refuseWithoutPooler,
  reservePort,
  sizeOrRefuse,
} from './common.ts';
import type { ControlContext } from './context.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { defaultAddons } from '../domain/service/default-addons.ts';
import { chooseMembers, replicaCountsOrRefuse } from './replicas.ts';
import type { Accepted } from './service-rules.ts';
import { joinVpc } from './vpcs.ts';
import { makeDue } from '../store/leases.ts';
import { beginOperation } from '../store/operations.ts';
import { changeService } from '../store/services.ts';
import { insertSpare, lockSpare } from '../store/spares.ts';
import type { Tx } from '../store/tables.ts';

/** Creates a service, from a spare where one fits. Its initial password is in this answer only. */
export async function createService(
  context: ControlContext,
  caller: Caller,
  body: CreateServiceBody,
): Promise<Accepted> {
  const { addons, size, replicas } = await specOrRefuse(context, body);
  const initialPassword = newPassword();
  const verifier = await scramVerifier(initialPassword);
  const change = {
    project_id: caller.projectId,
    name: body.name,
    environment: body.environment_tag ?? 'DEV',
    created: new Date(),
    created_by: caller.publicKey,
    storage_gb: body.storage_gb ?? defaultStorageGb(size),
    first_verifier: verifier,
  };
  return makeChange(context.store, caller, async (tx) => {
    await refuseSecondProject(tx, context.region, caller.projectId);
    await keepWithinLimits(tx, caller.projectId, {
      services: 1,
      ...weightOf(size, replicas.replica_count + 1),
    });
    const highlyAvailable = replicas.replica_count > 0;
    // Spares are in no VPC and have no replicas.
    const spare =
      highlyAvailable || body.vpc_id !== undefined
        ? null
        : await lockSpare(tx, { region: context.region.code, addons, size });
    const fresh = spare ?? (await insertServiceWithPort(context, tx, addons, size, null));
    const operation = await beginOperation(
      tx,
      { id: fresh.id, project_id: caller.projectId },
      'create',
      caller,
      null,
    );
    const pooler =
      body.enable_pooler === true
        ? { pooler: true, pooler_port: await reservePort(tx, context.region) }
        : {};
    const ha = highlyAvailable
      ? {
          ...replicas,
          members: await chooseMembers(
            context,
            tx,
            { ...fresh, ...pooler },
            replicas.replica_count,
          ),
        }
      : {};
    const vpc =
      body.vpc_id === undefined
        ? {}
        : await joinVpc(tx, context.region, caller.projectId, fresh, body.vpc_id);
    const row = await changeService(tx, fresh, { ...change, ...pooler, ...ha, ...vpc }, operation);
    await makeDue(tx, row.id);
    return { doc: row.doc, operationId: operation.id, initialPassword };
  });
}

/**
 * Checks what a create asks for against the region: type, size, region, replicas, disk and pooler.
 */
async function specOrRefuse(context: ControlContext, body: CreateServiceBody) {
  const addons = chooseAddons(context, body);
  const size = sizeOrRefuse(body.cpu_millis, body.memory_gbs, {
    fallback: DEFAULT_SIZE,
    sharedAllowed: true,
  });
  if (body.region_code !== undefined && body.region_code !== context.region.code) {
    throw new ApiError(
      'INVALID_REQUEST',
      `region_code: found ${JSON.stringify(body.region_code)}; allowed: ${context.region.code} (GET /projects/{project_id}/regions)`,
    );
  }
  const replicas = replicaCountsOrRefuse(
    context,
    body.replica_count ?? 0,
    body.sync_replica_count ?? 0,
  );
  await refuseFullDisk(context.region, 'services');
  const capability = context.region.engine.lifecycle.supports(addons);
  if ('missing' in capability)
    throw new ApiError('UNAVAILABLE_HERE', `${typeOfAddons(addons)}: ${capability.missing}`);
  if (body.enable_pooler === true) refuseWithoutPooler(context.region);
  return { addons, size, replicas };
}

/** Inserts a service with a new port. */
export async function insertServiceWithPort(
  context: ControlContext,
  tx: Tx,
  addons: readonly Addon[],
  size: Size,
  origin: Origin | null,
): Promise<ServiceRow> {
  const port = await reservePort(tx, context.region);
  return insertSpare(tx, {
    region: context.region.code,
    serviceType: typeOfAddons(addons),
    addons,
    size,
    host: context.region.host,
    port,
    origin,
  });
}

export function chooseAddons(context: ControlContext, body: CreateServiceBody): readonly Addon[] {
  if (body.addons !== undefined && body.service_type !== undefined) {
    throw new ApiError(
      'INVALID_REQUEST',
      `service_type: found together with addons; send one of them (addons decide the type: ${typeOfAddons(body.addons)})`,
    );
  }
  if (body.service_type !== undefined) return ADDONS_OF_TYPE[body.service_type];
  return body.addons?.toSorted().toReversed() ?? defaultAddons(context.region.engine);
}
