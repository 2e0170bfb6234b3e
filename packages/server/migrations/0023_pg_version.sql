-- The major version of PostgreSQL that a service runs; null: that of its data, which the control plane
-- records when it starts.
alter table services add column pg_version integer;

-- Services of the simulated region had the newest version.
update simulated_documents set document = document || '{"major": 18}' where key like 'service/%';
