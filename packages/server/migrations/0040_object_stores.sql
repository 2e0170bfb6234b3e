-- The object store of a region on Kubernetes: where WAL and base backups of its services are kept.

alter table kubernetes_regions
  -- The bucket's place, without secrets; null: none is set.
  add column object_store jsonb,
  -- The secret key and the certificates of its authority, as JSON, encrypted.
  add column object_store_sealed bytea,
  add check ((object_store is null) = (object_store_sealed is null));
