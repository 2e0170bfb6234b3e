-- Projects, their keys, services with the operations on them, and samples of what services use.

create table projects (
  id text primary key,
  name text not null,
  created timestamptz not null default now()
);

create table api_keys (
  public_key text primary key,
  project_id text not null references projects,
  name text not null,
  role text not null check (role in ('admin', 'developer', 'viewer')),
  secret_hash bytea not null, -- sha-256 of 256 random bits: no slow hash is needed
  created timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used timestamptz
);

-- The port handed out last; updating it is what makes two creates take turns.
create table regions (
  code text primary key,
  last_port integer not null
);

create table services (
  id text primary key,
  -- null: a spare, running and waiting for somebody to claim it
  project_id text references projects,
  region_code text not null references regions,
  name text not null,
  service_type text not null check (service_type in ('TIMESCALEDB', 'POSTGRES', 'VECTOR')),
  addons text[] not null,
  environment text not null check (environment in ('DEV', 'PROD')),
  created timestamptz not null default now(),
  host text not null,
  port integer not null,
  resource_id text not null,

  -- wanted
  cpu_millis integer, -- both null: shared
  memory_gbs integer,
  power text not null check (power in ('running', 'paused')),
  deleting boolean not null default false,
  first_verifier text,

  -- seen
  reachable boolean not null default false,
  memory_mb integer,
  milli_cpu integer,
  storage_mb integer,

  -- what users see: computed from the above and the operation under way, by changeService alone
  operation_id text,
  status text not null check (status in ('QUEUED', 'CONFIGURING', 'READY', 'UNSTABLE', 'PAUSING', 'PAUSED', 'RESUMING', 'UPGRADING', 'DELETING')),
  doc text not null,

  -- when the reconciler shall look at it; null: when poked
  due_at timestamptz default now(),
  attempt integer not null default 0,
  lease_token text,
  lease_until timestamptz,

  check ((cpu_millis is null) = (memory_gbs is null)),
  unique (region_code, port)
);
create index services_of_project on services (project_id, created, id);
create index services_due on services (due_at) where due_at is not null;

create table operations (
  id text primary key,
  project_id text references projects,
  service_id text not null,
  kind text not null,
  status text not null check (status in ('queued', 'running', 'succeeded', 'failed')),
  requested_by text not null,
  steps jsonb not null default '[]',
  error text,
  created timestamptz not null default clock_timestamp(),
  finished timestamptz,
  check ((finished is null) = (status in ('queued', 'running')))
);
create index operations_of_project on operations (project_id, created desc, id);
create index operations_of_service on operations (service_id, created desc, id);
-- One operation at a time on a service.
create unique index operation_under_way on operations (service_id) where finished is null;

create table samples (
  service_id text not null,
  at timestamptz not null,
  cpu_millis integer not null,
  memory_bytes bigint not null,
  storage_bytes bigint not null,
  connections integer not null,
  transactions_per_second real not null,
  primary key (service_id, at)
);
create index samples_at on samples using brin (at);
