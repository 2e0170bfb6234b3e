/** Creates services. */
import {
  type Addon,
  ADDONS_OF_TYPE,
  ApiError,
  type CreateServiceBody,
  DEFAULT_SIZE,
  defaultStorageGb,
  typeOfAddons,
} from '@howdah/contract';
import { lifetimeOfNew } from '../domain/service/lifetime.ts';
import type { Region } from '../engine/regions.ts';
import { newPassword } from '../lib/ids.ts';
import { scramVerifier } from '../lib/scram.ts';
import { type Caller, makeChange } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { poolerColumns, refuseWithoutPort } from './endpoints.ts';
import { refuseFullDisk, refuseLargeQuota, sizeOrRefuse } from './room.ts';
import { refuseSecondProject } from './single-project.ts';
import {
  cpuBoundOrRefuse,
  refuseWithoutAnswer,
  type Accepted,
  refuseUsedName,
} from './service-rules.ts';
import { autoSuspendOfNew } from './auto-suspend.ts';
import { keepWithinKey } from './lifetimes.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { defaultAddons } from '../domain/service/spec.ts';
import { replicaCountsOrRefuse } from './replicas.ts';
import { refuseImpossible, regionOrRefuse } from './regions.ts';
import { joinVpc } from './vpcs.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation } from '../store/operations.ts';
import { changeService } from '../store/services.ts';
import { insertServiceAtEndpoint } from '../store/new-services.ts';
import { lockSpare } from '../store/spares.ts';

/** Creates a service, from a spare where one fits. Its initial password is in this answer only. */
export async function createService(
  context: ControlContext,
  caller: Caller,
  body: CreateServiceBody,
): Promise<Accepted> {
  const { regions } = context;
  const { region, alias } = regionOrRefuse(regions, body.region_code);
  const { addons, major, size, replicas } = await specOrRefuse(region, caller, body);
  const environment = body.environment_tag ?? 'DEV';
  const facts = {
    environment,
    addons,
    has_gateway: replicas.replica_count > 0,
    pooler: body.enable_pooler === true,
    vpc_id: body.vpc_id ?? null,
    read_replica_sets: [],
  };
  const auto_suspend_seconds = autoSuspendOfNew(
    region,
    caller,
    body.auto_suspend_seconds,
    facts,
    null,
  );
  const cpu_bound = cpuBoundOrRefuse(region, caller, body.cpu_bound, null);
  const initialPassword = newPassword();
  const verifier = await scramVerifier(initialPassword);
  const change = {
    project_id: caller.projectId,
    region_alias: alias,
    name: body.name,
    environment,
    created: new Date(),
    created_by: caller.publicKey,
    storage_gb: body.storage_gb ?? defaultStorageGb(size),
    cpu_bound,
    ...lifetimeOfNew(caller, body, environment),
    auto_suspend_seconds,
    first_verifier: verifier,
  };
  return makeChange(context.store, caller, async (tx) => {
    await refuseWithoutAnswer(region);
    await refuseSecondProject(tx, regions, region, caller.projectId);
    await refuseUsedName(tx, caller.projectId, body.name, body.unique_name);
    await keepWithinKey(tx, caller);
    await keepWithinLimits(tx, caller.projectId, {
      services: 1,
      ...weightOf(size, replicas.replica_count + 1),
    });
    const highlyAvailable = replicas.replica_count > 0;
    // Spares are in no VPC, have no replicas and never sleep.
    const spare =
      highlyAvailable || body.vpc_id !== undefined || auto_suspend_seconds !== null
        ? null
        : await lockSpare(tx, { region: region.code, addons, major, size });
    const fresh =
      spare ??
      (await refuseWithoutPort(
        insertServiceAtEndpoint(tx, region, { addons, major, size, origin: null }),
      ));
    const operation = await beginOperation(
      tx,
      { id: fresh.id, project_id: caller.projectId },
      'create',
      caller,
      null,
    );
    const pooler = body.enable_pooler === true ? await poolerColumns(region, fresh, tx) : {};
    const ha = highlyAvailable ? { ...replicas, has_gateway: true } : {};
    const vpc =
      body.vpc_id === undefined
        ? {}
        : await joinVpc(tx, region, caller.projectId, fresh, body.vpc_id);
    const row = await changeService(tx, fresh, { ...change, ...pooler, ...ha, ...vpc }, operation);
    await makeDue(tx, row.id);
    return { doc: row.doc, operationId: operation.id, initialPassword };
  });
}

/**
 * Checks what a create asks for against its region: type, version, size, replicas, disk, pooler.
 */
async function specOrRefuse(region: Region, caller: Caller, body: CreateServiceBody) {
  const addons = chooseAddons(region, body);
  const size = sizeOrRefuse(region, caller, body, { fallback: DEFAULT_SIZE, sharedAllowed: true });
  await refuseLargeQuota(region, caller, body.storage_gb);
  const replicas = replicaCountsOrRefuse(
    region,
    body.replica_count ?? 0,
    body.sync_replica_count ?? 0,
  );
  await refuseFullDisk(region, 'services');
  const asked = body.pg_version === undefined ? null : Number(body.pg_version);
  const capability = region.engine.lifecycle.supports(addons, asked);
  if ('missing' in capability)
    throw new ApiError('UNAVAILABLE_HERE', `${typeOfAddons(addons)}: ${capability.missing}`);
  const { major } = capability;
  if (body.enable_pooler === true) refuseImpossible(region, 'enablePooler', 'enable_pooler');
  return { addons, major, size, replicas };
}

export function chooseAddons(region: Region, body: CreateServiceBody): readonly Addon[] {
  const { addons, service_type: type } = body;
  if (addons !== undefined && type !== undefined && typeOfAddons(addons) !== type)
    throw new ApiError(
      'INVALID_REQUEST',
      `service_type: found ${type}, but addons ${JSON.stringify(addons)} make ` +
        `${typeOfAddons(addons)}; send one of them, or both for the same type`,
    );
  if (addons !== undefined) return addons.toSorted().toReversed();
  return type === undefined ? defaultAddons(region.engine) : ADDONS_OF_TYPE[type];
}
