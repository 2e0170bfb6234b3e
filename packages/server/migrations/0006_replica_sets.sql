-- Read replica sets. A set is a service of its own kind: it has a size, a port, a pooler, operations and nodes (its members) as services do, and
-- follows the primary of its parent.

alter table services
  -- The service that a read replica set follows; null: a service of its own.
  add column parent_id text references services,
  -- What users see of a service's sets, written with every change of one of them.
  add column read_replica_sets jsonb not null default '[]';
create index sets_of_service on services (parent_id) where parent_id is not null;

-- Figures are of each server: a member of the service, or a node of the set.
alter table samples
  add column node smallint not null default 0,
  -- Of one that follows: what it had not replayed, and how old what it showed was.
  add column lag_bytes bigint,
  add column lag_seconds real,
  drop constraint samples_pkey,
  add primary key (service_id, at, node);
