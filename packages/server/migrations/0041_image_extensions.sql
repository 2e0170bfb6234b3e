-- The extensions that the images of a region have, for its types of services.

alter table kubernetes_regions
  -- By major version of PostgreSQL, beside the contributed modules.
  add column extensions jsonb not null default '{}';

-- The images of CloudNativePG's project have pgvector.
update kubernetes_regions set extensions = (
  select coalesce(jsonb_object_agg(major, '["vector"]'::jsonb), '{}')
  from jsonb_each_text(images) as named (major, image)
  where image = format('ghcr.io/cloudnative-pg/postgresql:%s-standard-trixie', major)
);

alter table kubernetes_regions alter column extensions drop default;
