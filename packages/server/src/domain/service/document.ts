/** The document of a service, as the API returns it. */
import type { Service, VpcEndpoint } from '@howdah/contract';
import type { ServiceRow } from './row.ts';
import { poolerSpec } from './spec.ts';

/** The endpoint for clients inside the VPC; null: the service is in none. */
export function vpcEndpointOf({ vpc_id, vpc_address, host, port }: ServiceRow): VpcEndpoint | null {
  return vpc_id === null ? null : { host: vpc_address ?? host, port, vpc_id };
}

function upgradeIn({ upgraded }: ServiceRow): Pick<Service, 'upgraded'> {
  const { from = null, at = null } = upgraded ?? {};
  return from === null || at === null ? {} : { upgraded: { from: String(from), at } };
}

export function serviceDocument(row: ServiceRow): Service {
  const [pooler, vpcEndpoint] = [poolerSpec(row), vpcEndpointOf(row)];
  return {
    service_id: row.id,
    project_id: row.project_id ?? '',
    name: row.name,
    service_type: row.service_type,
    ...(row.pg_version === null ? {} : { pg_version: String(row.pg_version) }),
    ...upgradeIn(row),
    status: row.status,
    region_code: row.region_alias ?? row.region_code,
    created: row.created.toISOString(),
    ...(row.created_by === null ? {} : { created_by: row.created_by }),
    ...(row.expires_at === null
      ? {}
      : { expires_at: row.expires_at.toISOString(), purge_on_expiry: row.purge_on_expiry }),
    ...(row.auto_suspend_seconds === null
      ? {}
      : { auto_suspend_seconds: row.auto_suspend_seconds }),
    ...(row.suspended_at === null ? {} : { suspended: true }),
    ...(row.last_active_at === null ? {} : { last_active_at: row.last_active_at.toISOString() }),
    endpoint: { host: row.host, port: row.port },
    ...(pooler === null ? {} : { connection_pooler: { endpoint: pooler } }),
    ...(vpcEndpoint === null ? {} : { vpc_endpoint: vpcEndpoint, vpcEndpoint }),
    ...(row.metric_exporter_id === null ? {} : { metric_exporter_id: row.metric_exporter_id }),
    ...(row.allow_list_id === null ? {} : { allow_list_id: row.allow_list_id }),
    ...(row.origin === null
      ? {}
      : {
          forked_from: {
            project_id: row.project_id ?? '',
            service_id: row.origin.parent,
            is_standby: false,
          },
        }),
    ...(row.parent_id === null
      ? {}
      : {
          forked_from: {
            project_id: row.project_id ?? '',
            service_id: row.parent_id,
            is_standby: true,
          },
        }),
    ha_replicas: { replica_count: row.replica_count, sync_replica_count: row.sync_replica_count },
    metadata: { environment: row.environment },
    metrics: { memory_mb: row.memory_mb, milli_cpu: row.milli_cpu, storage_mb: row.storage_mb },
    ...(row.waits === null ? {} : { waits: row.waits }),
    read_replica_sets: row.read_replica_sets,
    resources: [
      {
        id: row.resource_id,
        spec: {
          ...(row.cpu_millis === null || row.memory_gbs === null
            ? {}
            : { cpu_millis: row.cpu_millis, memory_gbs: row.memory_gbs }),
          storage_gb: row.storage_gb,
          ...(row.cpu_bound === null ? {} : { cpu_bound: row.cpu_bound }),
          volume_type: 'local',
        },
      },
    ],
    ...(row.warnings.length === 0 ? {} : { warnings: row.warnings }),
  };
}
