/** The part of the metadata database that the integrity check reads. */
import { IS_TRANSITIONAL, type LiveStatus } from '@howdah/contract';
import type { ClientConfig } from 'pg';
import type { ServerPort } from '../engine/records.ts';
import { inCommandSession } from './command-session.ts';
import { PRIMARY, SERVERS } from './engine-records.ts';
import type { KubernetesRegionRow } from './kubernetes-regions.ts';
import { WANTED_VPCS, type WantedVpc } from './vpcs.ts';

/** The part of the metadata database that the integrity check compares. */
export type Expected = {
  services: {
    id: string;
    /** null: it is a spare. */
    projectId: string | null;
    region: string;
    status: LiveStatus;
    port: number;
    pooler: boolean;
    poolerPort: number | null;
    power: 'running' | 'paused';
    /** Whether its server is stopped until a client comes. */
    asleep: boolean;
    spare: boolean;
    operationId: string | null;
    /** The servers behind its gateway. */
    servers: ServerPort[];
    primary: number;
    vpcId: string | null;
    vpcAddress: string | null;
    /** The service that a read replica set follows. */
    parentId: string | null;
    /** Whether no operation has created or restored it yet: there may be nothing of it. */
    provisioning: boolean;
  }[];
  vpcs: WantedVpc[];
  clusters: KubernetesRegionRow[];
  /** Services with a stopped server in a region that they have moved from. */
  moved: { id: string; region: string }[];
  /** Services with a copy in a region that they move to. */
  copied: { id: string; region: string }[];
  /** Services whose backup is being verified. */
  verifying: string[];
  /** Sentences about rows that contradict each other. */
  contradictions: string[];
};

/** Services whose status is not transitional, and was the same before. */
export function settledServices(before: Expected, after: Expected): Expected['services'] {
  return after.services.filter(
    (service) =>
      !IS_TRANSITIONAL[service.status] &&
      before.services.some(
        (earlier) =>
          earlier.id === service.id &&
          earlier.status === service.status &&
          earlier.asleep === service.asleep,
      ),
  );
}

/** A fork that is being made for leases has no operation that would say so. */
const STATUS = `case
  when project_id is null and not deleting and not provisioned
    and exists (select from leased_servers l where l.service_id = s.id)
  then 'CONFIGURING' else status end`;

/** Reads the metadata database of an installation, whether or not its control plane runs. */
export async function readExpected(connection: ClientConfig): Promise<Expected> {
  return inCommandSession(connection, 'howdah audit', async (client) => {
    const services = await client.query<Expected['services'][number]>(
      `select id, project_id as "projectId", region_code as region,
         ${STATUS} as status, port, pooler,
         pooler_port as "poolerPort", power, suspended_at is not null as asleep,
         project_id is null as spare,
         operation_id as "operationId",
              ${SERVERS} as servers, ${PRIMARY} as primary, vpc_id as "vpcId",
              vpc_address as "vpcAddress", parent_id as "parentId",
              project_id is not null and status <> 'READY' and (recovery is not null or not exists (
                select from operations o
                where o.service_id = s.id and o.status = 'succeeded'
                  and o.kind in ('create', 'adopt', 'fork', 'start', 'restart', 'resize', 'restore',
                    'repair', 'recover', 'reset', 'upgrade',
                    'undoUpgrade', 'move')
              )) as provisioning
       from services s`,
    );
    const vpcs = await client.query<WantedVpc>(WANTED_VPCS);
    const clusters = await client.query<KubernetesRegionRow>(
      'select * from kubernetes_regions order by created, code',
    );
    const verifying = await client.query<{ id: string }>(
      `select service_id as id from operations
       where kind in ('verifyBackup', 'tryUpgrade') and finished is null`,
    );
    const moved = await client.query<{ id: string; region: string }>(
      `select id, move ->> 'from' as region from services
       where move is not null and move ->> 'state' in ('moved', 'kept')`,
    );
    const copied = await client.query<{ id: string; region: string }>(
      `select id, move ->> 'to' as region from services
       where move is not null and move ->> 'state' in ('copy', 'switch', 'abort')`,
    );
    const contradictions = await client.query<{ text: string }>(CONTRADICTIONS);
    return {
      services: services.rows,
      vpcs: vpcs.rows,
      clusters: clusters.rows,
      moved: moved.rows,
      copied: copied.rows,
      verifying: verifying.rows.map(({ id }) => id),
      contradictions: contradictions.rows.map(({ text }) => text),
    };
  });
}

/**
 * The invariants of docs/troubleshooting.md that the metadata database alone can contradict, each
 * as a query for what breaks it.
 */
const CONTRADICTIONS = `
  select format('operation %s (%s) is under way on service %s, which does not know of it', o.id,
    o.kind, o.service_id) as text
  from operations o left join services s on s.id = o.service_id
  where o.finished is null and o.kind not in ('verifyBackup', 'runBackup', 'tryUpgrade')
    and s.operation_id is distinct from o.id
  union all
  select format('operation %s (%s) is under way beside the others of %s, which is %s', o.id, o.kind,
    o.service_id, coalesce(s.status, 'gone'))
  from operations o left join services s on s.id = o.service_id
  where o.finished is null and o.kind in ('verifyBackup', 'runBackup', 'tryUpgrade')
    and (s.id is null or s.deleting)
  union all
  select format('service %s names operation %s, which has ended', s.id, s.operation_id)
  from services s join operations o on o.id = s.operation_id where o.finished is not null
  union all
  select format('service %s is %s with no operation under way', id, status)
  from services
  where operation_id is null and project_id is not null and deleted_at is null
    and status not in ('READY', 'PAUSED', 'UNSTABLE')
  union all
  select format('service %s has no operation that created it', id) from services s
  where project_id is not null and not exists (
    select from operations o where o.service_id = s.id and o.kind in ('create', 'adopt', 'fork'))
  union all
  select format('the document of service %s says another status or port than its record', id)
  from services
  where doc <> '' and (doc::json ->> 'status' <> status
    or (doc::json -> 'endpoint' ->> 'port')::int <> port)
  union all
  select format('port %s is promised to %s', port, string_agg(holder, ' and to ' order by holder))
  from promised_ports group by region_code, port having count(*) > 1
  union all
  select format('the document of service %s says another VPC than its record', id)
  from services
  where doc <> '' and (doc::json #>> '{vpc_endpoint,vpc_id}') is distinct from vpc_id::text
  union all
  select format('service %s is at %s of VPC %s, an address that it does not hold', s.id,
    s.vpc_address, s.vpc_id)
  from services s left join vpc_addresses a on a.service_id = coalesce(s.parent_id, s.id)
    and a.vpc_id = s.vpc_id
  where s.vpc_address is not null and host(a.address) is distinct from s.vpc_address
  union all
  select format('service %s holds %s of VPC %s, in which it is not', s.id, host(a.address),
    a.vpc_id)
  from vpc_addresses a join services s on s.id = a.service_id
  where s.vpc_id is distinct from a.vpc_id and s.operation_id is null and s.deleted_at is null
  union all
  select format('read replica set %s has other networks than its service %s', s.id, p.id)
  from services s join services p on p.id = s.parent_id
  where (s.vpc_id, s.vpc_address, s.allow_list_id, s.allowed_networks)
    is distinct from (p.vpc_id, p.vpc_address, p.allow_list_id, p.allowed_networks)
  union all
  select format('the document of service %s says another allow list than its record', id)
  from services
  where doc <> '' and parent_id is null
    and (doc::json ->> 'allow_list_id') is distinct from allow_list_id
  union all
  select format('peering %s of VPC %s is %s, and there is no other side to it', p.id, p.vpc_id,
    p.status)
  from peerings p join vpcs v on v.id = p.vpc_id
  where p.status in ('approved', 'active') and not exists (
    select from peerings o where o.vpc_id::text = p.peer_vpc_id and o.peer_account_id = v.project_id
      and o.peer_vpc_id = v.id::text
      and o.status in ('approved', 'active'))
  union all
  select format('the document of service %s says another pooler than its record', id)
  from services
  where doc <> '' and (doc::json #>> '{connection_pooler,endpoint,port}')::int
    is distinct from case when pooler then pooler_port end
  union all
  select format('operation %s (%s) was asked for by %s and stands in no entry of the audit log',
    o.id, o.kind, o.requested_by)
  from operations o
  where o.requested_by <> 'howdah'
    and not exists (select from audit_log a where a.operation_id = o.id)
    and o.created > (select timestamp::timestamptz from kysely_migration where name = '0009_events')
  union all
  select format('service %s shows other read replica sets than it has', id)
  from services p
  where (select coalesce(jsonb_agg(s.id order by s.created, s.id), '[]') from services s
    where s.parent_id = p.id)
        <> jsonb_path_query_array(p.read_replica_sets, '$[*].id')
  union all
  select format('read replica set %s must be %s and its service %s %s', s.id, s.power, p.id,
    p.power)
  from services s join services p on p.id = s.parent_id
  where not s.deleting and s.power <> case when p.deleting then 'paused' else p.power end
  union all
  select format('the claim on service %s ended %s ago and was neither given back nor taken over',
    id, now() - lease_until)
  from services where lease_until < now() - interval '10 seconds'`;
