-- Leases: copies of a service that are taken for tests and returned after them
-- (docs/decisions/0108-leases.md).

-- The forks of a service that are for leases. One is kept warm while its service has no project.
create table leased_servers (
  service_id text primary key references services on delete cascade,
  parent_id text not null,
  -- The transactions of the parent that had ended before the fork; null: not known.
  committed text,
  -- Whether it has databases that are leases, in place of being one.
  is_shared boolean not null default false
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

-- The leases in servers that they share. `returned`: its database is being dropped.
create table leased_databases (
  id text primary key,
  service_id text not null references leased_servers on delete cascade,
  database text not null,
  role text not null,
  -- The SCRAM verifier of the password of its role.
  verifier text not null,
  state text not null default 'asked' check (state in ('asked', 'ready', 'returned')),
  problem text,
  created timestamptz not null default now(),
  created_by text not null,
  expires_at timestamptz not null
);
create index leased_databases_in on leased_databases (service_id);

create view leases as
select s.id, s.project_id, l.parent_id, 'server' as reset, s.id as service_id,
       coalesce(s.vpc_address, s.host) as host, s.port, 'tsdb' as database, 'tsdbadmin' as role,
       s.status = 'READY' as ready, o.error as problem,
       s.created, s.created_by, s.expires_at
from leased_servers l
join services s on s.id = l.service_id
left join operations o on o.id = s.operation_id and o.finished is null
where s.project_id is not null and not s.deleting and not l.is_shared
union all
select d.id, s.project_id, l.parent_id, 'database', s.id,
       coalesce(s.vpc_address, s.host), s.port, d.database, d.role,
       d.state = 'ready' and s.status = 'READY', coalesce(d.problem, o.error),
       d.created, d.created_by, d.expires_at
from leased_databases d
join leased_servers l on l.service_id = d.service_id
join services s on s.id = d.service_id
left join operations o on o.id = s.operation_id and o.finished is null
where s.project_id is not null and not s.deleting and d.state <> 'returned';
