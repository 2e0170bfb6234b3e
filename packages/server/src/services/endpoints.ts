/** The endpoints of services and of their poolers, which the engine chooses. */
import { ApiError } from '@howdah/contract';
import type { ServiceChange, ServiceRow } from '../domain/service/row.ts';
import { EngineUnavailable } from '../engine/engine.ts';
import type { Region } from '../engine/regions.ts';
import { NoPortLeft, type Endpoint, type Listener } from '../engine/spec.ts';
import { createPortLedger } from '../store/regions.ts';
import type { Tx } from '../store/tables.ts';

/** Has the engine choose an endpoint. The caller reserves it in the same transaction. */
export async function reserveEndpoint(
  tx: Tx,
  region: Region,
  listener: Listener,
): Promise<Endpoint> {
  const { addresses } = region.engine;
  return refuseWithoutPort(addresses.reserve(createPortLedger(tx, region), listener));
}

/** @throws ApiError LIMIT_EXCEEDED when no port is left for what is made */
export async function refuseWithoutPort<T>(made: Promise<T>): Promise<T> {
  try {
    return await made;
  } catch (error) {
    if (error instanceof NoPortLeft) throw new ApiError('LIMIT_EXCEEDED', error.message);
    throw error;
  }
}

/**
 * The change that enables a pooler. If it was enabled before, it is where it was.
 *
 * @throws ApiError INVALID_STATE when the users of the service have taken the name of its role
 */
export async function poolerColumns(
  region: Region,
  { id, host, pooler_port: port, status, parent_id: parent }: ServiceRow,
  tx: Tx,
): Promise<ServiceChange> {
  if (status === 'READY') {
    // The operation asks a server again that does not answer now, and shows why it does not.
    const why = await region.engine.sql.whyNoPooler(parent ?? id).catch((error: unknown) => {
      if (error instanceof EngineUnavailable) return null;
      throw error;
    });
    if (why !== null) throw new ApiError('INVALID_STATE', `cannot enablePooler: ${why}`);
  }
  if (port !== null) return { pooler: true };
  const endpoint = await reserveEndpoint(tx, region, { id, poolerOf: host });
  return {
    pooler: true,
    pooler_port: endpoint.port,
    pooler_host: endpoint.host === host ? null : endpoint.host,
  };
}
