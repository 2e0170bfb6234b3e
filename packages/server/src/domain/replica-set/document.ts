/** The document of a read replica set, as the API returns it. */
import { type ReadReplicaSet, REPLICA_SET_STATUS } from '@howdah/contract';
import { vpcEndpointOf } from '../service/document.ts';
import type { ServiceRow } from '../service/row.ts';
import { poolerSpec } from '../service/spec.ts';

export function replicaSetDocument(row: ServiceRow): ReadReplicaSet {
  const [pooler, vpcEndpoint] = [poolerSpec(row), vpcEndpointOf(row)];
  return {
    id: row.id,
    name: row.name,
    nodes: row.nodes,
    cpu_millis: row.cpu_millis ?? 0,
    memory_gbs: row.memory_gbs ?? 0,
    endpoint: { host: row.host, port: row.port },
    ...(pooler === null ? {} : { connection_pooler: { endpoint: pooler } }),
    ...(vpcEndpoint === null ? {} : { vpc_endpoint: vpcEndpoint }),
    metadata: { environment: row.environment },
    purpose: row.purpose,
    status: REPLICA_SET_STATUS[row.status],
  };
}
