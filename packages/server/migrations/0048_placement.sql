-- Where the pods of a region on Kubernetes run, and how they get their images.

alter table kubernetes_regions
  add column placement jsonb not null default '{}',
  -- The fields that services have in place of those, by their ids.
  add column service_placements jsonb not null default '{}',
  -- Null: WAL is in the volume of the data.
  add column wal_storage_class text,
  -- The credentials of registries, encrypted, and the names of those registries.
  add column image_pull_sealed bytea,
  add column image_pull_registries jsonb not null default '[]';
