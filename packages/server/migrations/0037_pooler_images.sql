-- Poolers in regions on Kubernetes. Regions of before have the image that new ones have by default.

alter table kubernetes_regions
  -- The image of PgBouncer.
  add column pooler_image text not null default 'ghcr.io/cloudnative-pg/pgbouncer:1.25.1';

alter table kubernetes_regions alter column pooler_image drop default;
