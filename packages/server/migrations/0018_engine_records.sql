-- An engine chooses the servers of a service, their ports and the primary, and keeps them in tables of its own. The desired state has numbers.

alter table services
  -- How many nodes a read replica set must have; 0: this is a service.
  add column nodes integer not null default 0,
  -- Whether a gateway is before its servers: it has replicas, or had some.
  add column has_gateway boolean not null default false,
  -- Whether another primary is wanted: a switchover was requested.
  add column switchover boolean not null default false;
update services set
  nodes = case when parent_id is null then 0 else jsonb_array_length(members) end,
  has_gateway = parent_id is null,
  switchover = coalesce(leave_member = primary_member, false)
where members <> '[]';

-- The server that accepts writes; no row: it is server 0. Nothing is promoted before it is recorded here.
create table recorded_primaries (
  service_id text primary key references services on delete cascade,
  server integer not null
);
insert into recorded_primaries (service_id, server)
select id, primary_member from services where primary_member <> 0;

-- The ports of the servers behind a gateway, on the loopback address.
create table server_ports (
  service_id text not null references services on delete cascade,
  server integer not null,
  region_code text not null references regions,
  port integer not null,
  primary key (service_id, server),
  unique (region_code, port)
);
insert into server_ports (service_id, server, region_code, port)
select id, (member ->> 'n')::integer, region_code, (member ->> 'port')::integer
from services, jsonb_array_elements(members) as member;

drop view promised_ports;
create view promised_ports as
  select region_code, port, format('service %s', id) as holder from services
  union all
  select region_code, pooler_port, format('the pooler of service %s', id) from services where pooler_port is not null
  union all
  select region_code, port, format('server %s of service %s', server, service_id) from server_ports;

drop view project_usage;
create view project_usage as
  select project_id, count(*) filter (where parent_id is null)::int as services, count(*) filter (where parent_id is not null)::int as replica_sets,
         coalesce(sum(cpu_millis * case when parent_id is null then replica_count + 1 else nodes end), 0)::int as cpu_millis,
         coalesce(sum(memory_gbs * case when parent_id is null then replica_count + 1 else nodes end), 0)::int as memory_gbs
  from services where project_id is not null and deleted_at is null group by project_id;

alter table services
  drop column members,
  drop column primary_member,
  drop column leave_member;
