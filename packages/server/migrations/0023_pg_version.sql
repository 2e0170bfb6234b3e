-- The major version of PostgreSQL that a service runs; null: that of its data, which the control plane
-- records when it starts.
alter table services add column pg_version integer;
create index services_without_version on services (region_code) where pg_version is null;

-- Services of the simulated region had the newest version.
update simulated_documents set document = document || '{"major": 18}' where key like 'service/%';
