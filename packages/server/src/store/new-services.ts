/** Inserts services: for users, spares, warm forks and read replica sets. */
import { type Addon, defaultStorageGb, type Size, typeOfAddons } from '@howdah/contract';
import type { ServiceRow } from '../domain/service/row.ts';
import { sizeColumns } from '../domain/service/spec.ts';
import type { Region } from '../engine/regions.ts';
import type { Endpoint, Origin } from '../engine/spec.ts';
import { newId } from '../lib/ids.ts';
import { createPortLedger } from './regions.ts';
import type { Tx } from './tables.ts';

export type NewService = Readonly<{
  /** Default: a new one. */
  id?: string;
  region: string;
  addons: readonly Addon[];
  /** The major version of PostgreSQL; null: not known yet. */
  major: number | null;
  size: Size;
  /** Default: by the size. */
  storageGb?: number;
  endpoint: Endpoint;
  origin: Origin | null;
  /** The service that a read replica set follows. */
  parent?: string;
}>;

/** Inserts a service. It has no project, as spares do, until `changeService` assigns it to one. */
export async function insertService(tx: Tx, made: NewService): Promise<ServiceRow> {
  return tx
    .insertInto('services')
    .values({
      id: made.id ?? newId(),
      project_id: null,
      region_code: made.region,
      name: 'spare',
      service_type: typeOfAddons(made.addons),
      addons: [...made.addons],
      pg_version: made.major,
      environment: 'DEV',
      ...made.endpoint,
      resource_id: newId(),
      ...sizeColumns(made.size),
      storage_gb: made.storageGb ?? defaultStorageGb(made.size),
      power: 'running',
      first_verifier: null,
      origin: made.origin === null ? null : JSON.stringify(made.origin),
      parent_id: made.parent ?? null,
      deleted_at: null,
      drill: null,
      vpc_id: null,
      vpc_address: null,
      allow_list_id: null,
      metric_exporter_id: null,
      exported_until: null,
      allowed_networks: null,
      memory_mb: null,
      milli_cpu: null,
      storage_mb: null,
      operation_id: null,
      status: 'QUEUED',
      doc: '',
      lease_token: null,
      lease_until: null,
    })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/**
 * Inserts a service at an endpoint that its engine chooses.
 *
 * @throws NoPortLeft
 */
export async function insertServiceAtEndpoint(
  tx: Tx,
  region: Region,
  made: Omit<NewService, 'id' | 'region' | 'endpoint'>,
): Promise<ServiceRow> {
  const id = newId();
  const ports = createPortLedger(tx, region);
  const endpoint = await region.engine.addresses.reserve(ports, { id, poolerOf: null });
  return insertService(tx, { ...made, id, region: region.code, endpoint });
}
