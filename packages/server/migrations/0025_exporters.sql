-- Exporters: receivers of the samples of the services that they are attached to.

create table exporters (
  id text primary key,
  project_id text not null references projects,
  region_code text not null references regions,
  -- The alias of the region by which it was asked for; null: none.
  region_alias text,
  name text not null,
  type text not null
    check (type in ('PROMETHEUS_METRICS', 'PROMETHEUS_REMOTE_WRITE', 'OTLP_METRICS')),
  -- All that answers may show.
  config jsonb not null,
  -- The rest, as sealed JSON; null: there is none.
  secret bytea,
  created timestamptz not null default now(),
  -- Samples are pushed from this time on: after a failure there is a wait.
  next_at timestamptz not null default now(),
  -- Failures in a row.
  failures integer not null default 0,
  last_success timestamptz,
  -- Why the last push failed; null: it did not.
  last_error text
);
create index exporters_of_project on exporters (project_id, created, id);

alter table services
  add column metric_exporter_id text references exporters,
  -- Samples up to this time were pushed; of a read replica set, by the exporter of its service.
  add column exported_until timestamptz;
create index services_of_exporter on services (metric_exporter_id)
  where metric_exporter_id is not null;
