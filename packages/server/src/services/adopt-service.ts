/**
 * Makes a directory with the data of a service, which the metadata database does not know, a
 * service again (docs/decisions/0059-adopted-directories.md).
 */
import {
  ApiError,
  type Addon,
  type AdoptBody,
  DEFAULT_SIZE,
  defaultStorageGb,
  type Size,
  STORAGE_GB,
} from '@howdah/contract';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { NotAdoptable, type Adoptable } from '../engine/adoptable-data.ts';
import type { Region, Regions } from '../engine/regions.ts';
import type { Endpoint } from '../engine/spec.ts';
import { makeDue } from '../store/claims.ts';
import { beginOperation } from '../store/operations.ts';
import { isPromised, lockAdoptions } from '../store/regions.ts';
import { changeService, lockService } from '../store/services.ts';
import { insertService } from '../store/new-services.ts';
import type { Tx } from '../store/tables.ts';
import { useAllowList } from './allow-lists.ts';
import { type Caller, makeChange, type Outcome } from './change.ts';
import type { ControlContext } from './control-context.ts';
import { reserveEndpoint } from './endpoints.ts';
import { refuseFullDisk } from './room.ts';
import { refuseSecondProject } from './single-project.ts';
import { refuseMissingLibraries } from './extensions.ts';
import { keepWithinLimits, weightOf } from './limits.ts';
import { refuseWithoutAnswer } from './service-rules.ts';
import { joinVpc } from './vpcs.ts';

/** The quota leaves this much room beside data that takes more than the default. */
const ROOM = 1.25;

/** Adopts the data in a directory. Facts that it does not have get a default. */
export async function adoptService(
  { regions, store }: ControlContext,
  caller: Caller,
  body: AdoptBody,
): Promise<Outcome> {
  const { directory, name } = body;
  const { region, found } = await findOrRefuse(regions, directory);
  const { id, major, libraries, upgraded } = found;
  const addons: Addon[] = libraries.includes('timescaledb') ? ['time-series'] : [];
  const preload = libraries.filter((library) => library !== 'timescaledb');
  const capability = region.engine.lifecycle.supports(addons, major);
  if ('missing' in capability)
    throw new ApiError('UNAVAILABLE_HERE', `directory: ${capability.missing}`);
  await refuseMissingLibraries(region, preload, major, 'directory');
  await refuseFullDisk(region, 'services');
  const size = DEFAULT_SIZE;
  const storageGb = storageFor(size, found);
  return makeChange(store, caller, async (tx) => {
    await refuseWithoutAnswer(region);
    // The second of two calls for a directory finds the service. Services are locked before
    // regions.
    await lockAdoptions(tx);
    const known = await findKnown(tx, caller, id);
    if (known !== null) return answerOf(known.service, known.operationId, found, name);
    await refuseSecondProject(tx, regions, region, caller.projectId);
    await keepWithinLimits(tx, caller.projectId, { services: 1, ...weightOf(size, 1) });
    const endpoint = await endpointFor(tx, region, found, id);
    const made = { id, region: region.code, addons, major, size, storageGb, endpoint };
    const fresh = await insertService(tx, { ...made, origin: null });
    const subject = { id, project_id: caller.projectId };
    const operation = await beginOperation(tx, subject, 'adopt', caller, null);
    const change = {
      project_id: caller.projectId,
      name: name ?? id,
      created: new Date(),
      created_by: caller.publicKey,
      preload,
      // The adopted data is never replaced by an empty database.
      provisioned: true,
      ...(upgraded === null ? {} : { upgraded }),
      ...(await networksOf(tx, region, caller.projectId, fresh, body)),
    };
    const row = await changeService(tx, fresh, change, operation);
    await makeDue(tx, id);
    return answerOf(row, operation.id, found, name);
  });
}

/** The networks whose clients may connect. @throws ApiError when there is no such VPC or list */
async function networksOf(
  tx: Tx,
  region: Region,
  projectId: string,
  service: ServiceRow,
  { vpc_id: vpcId, allow_list_id: listId }: AdoptBody,
): Promise<ServiceChange> {
  const vpc = vpcId === undefined ? {} : await joinVpc(tx, region, projectId, service, vpcId);
  const list =
    listId === undefined
      ? {}
      : await useAllowList(tx, projectId, { vpc_id: vpcId ?? null }, listId);
  return { ...vpc, ...list };
}

/** The region whose directory it is, and what is found in it. */
async function findOrRefuse(
  { all }: Regions,
  directory: string,
): Promise<{ region: Region; found: Adoptable }> {
  try {
    for (const region of all) {
      const found = await region.engine.adoption?.find(directory);
      if (found != null) return { region, found };
    }
  } catch (error) {
    if (!(error instanceof NotAdoptable)) throw error;
    throw new ApiError('INVALID_REQUEST', `directory: ${error.message}`);
  }
  throw new ApiError(
    'INVALID_REQUEST',
    `directory: found ${JSON.stringify(directory)}; it is the absolute path of a directory of a ` +
      'service, which is directly in data/services of HOWDAH_HOME, ' +
      'or in that of a further region ' +
      'on this machine; howdah audit lists those that no service has',
  );
}

/**
 * The endpoint that its clients know, unless another service has the port now; then a new one.
 *
 * @throws ApiError INVALID_STATE when its server would go on listening at the former one
 */
async function endpointFor(
  tx: Tx,
  region: Region,
  { endpoint, pid }: Adoptable,
  id: string,
): Promise<Endpoint> {
  const [first, last] = region.portRange;
  const isFree =
    endpoint !== null &&
    endpoint.port >= first &&
    endpoint.port <= last &&
    !(await isPromised(tx, region.code, endpoint.port));
  if (isFree) return endpoint;
  if (pid !== null)
    throw new ApiError(
      'INVALID_STATE',
      `directory: its server runs (process ${pid}) on a port that it cannot keep: ` +
        `stop it (kill -INT ${pid}), then ask again`,
    );
  return reserveEndpoint(tx, region, { id, poolerOf: null });
}

/**
 * The service of a directory that is being adopted already; null: the metadata database does not
 * know it.
 *
 * @throws ApiError CONFLICT for any other service
 */
async function findKnown(
  tx: Tx,
  caller: Caller,
  id: string,
): Promise<{ service: ServiceRow; operationId: string } | null> {
  const locked = await lockService(tx, id);
  if (locked === null) return null;
  const { service, operation } = locked;
  if (operation?.kind === 'adopt' && service.project_id === caller.projectId)
    return { service, operationId: operation.id };
  throw new ApiError('CONFLICT', `directory: it is that of the service ${id}, ${stateOf(service)}`);
}

function stateOf({ deleted_at, project_id, parent_id, status, name }: ServiceRow): string {
  if (project_id === null) return 'which is a spare, or is being removed';
  if (parent_id !== null) return 'a read replica set';
  return deleted_at === null
    ? `which exists: ${JSON.stringify(name)} is ${status}`
    : 'which is deleted: howdah service restore restores it';
}

/** Data that takes more than the default must be writable. */
function storageFor(size: Size, { dataBytes }: Adoptable): number {
  const neededGb = Math.ceil((dataBytes / 1e9) * ROOM);
  return Math.min(STORAGE_GB.max, Math.max(defaultStorageGb(size), neededGb));
}

/** The document is an object: what was assumed becomes its last member. */
function answerOf(
  row: ServiceRow,
  operationId: string,
  found: Adoptable,
  name: string | undefined,
): Outcome {
  const assumed = [
    ...(name === undefined ? [`name: ${row.name}`] : []),
    ...assumptions(row, found),
  ];
  const doc = `${row.doc.slice(0, -1)},"assumed":${JSON.stringify(assumed)}}`;
  return { doc, operationId, note: assumed.join('\n') };
}

/** The facts that the directory does not have, and their values. */
function assumptions(row: ServiceRow, { endpoint }: Adoptable): string[] {
  const { service_type: type, cpu_millis: cpu, memory_gbs: memory, storage_gb: storage } = row;
  const loads = type === 'TIMESCALEDB' ? 'TimescaleDB' : 'no TimescaleDB';
  const port = endpoint?.port === row.port ? 'as before' : 'since the former one is not free';
  return [
    `service_type: ${type}, since its configuration loads ${loads}`,
    `size: cpu_millis ${cpu}, memory_gbs ${memory}, storage_gb ${storage}`,
    `port: ${row.port}, ${port}`,
    `environment: ${row.environment}`,
    ...(row.vpc_id === null && row.allow_list_id === null
      ? ['networks: no VPC and no allow list, so that clients of all networks may connect']
      : []),
    'without a connection pooler, replicas and an exporter',
  ];
}
