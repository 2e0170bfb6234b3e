-- Leases: copies of a service that are taken for tests and returned after them
-- (docs/decisions/0108-leases.md).

-- The forks of a service that are for leases. One is kept warm while its service has no project.
create table leased_servers (
  service_id text primary key references services on delete cascade,
  parent_id text not null,
  -- The transactions of the parent that had ended before the fork; null: it was not kept warm.
  committed text
);
create index leased_servers_of on leased_servers (parent_id);

-- How many forks of a service are kept warm: by its leases, and not for ever.
create table lease_demands (
  parent_id text primary key references services on delete cascade,
  -- The most leases at a time.
  peak integer not null,
  taken_at timestamptz not null default now(),
  -- The transactions of the parent that had ended when it was last asked.
  committed text
);

create view leases as
select s.id, s.project_id, l.parent_id, 'server' as reset, s.id as service_id,
       coalesce(s.vpc_address, s.host) as host, s.port, 'tsdb' as database, 'tsdbadmin' as role,
       s.status = 'READY' as ready, o.error as problem,
       s.created, s.created_by, s.expires_at
from leased_servers l
join services s on s.id = l.service_id
left join operations o on o.id = s.operation_id and o.finished is null
where s.project_id is not null and not s.deleting;
