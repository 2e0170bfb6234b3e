-- Disk belongs to somebody: a quota for each server of a service, and services that are removed without the time for a restore.

alter table services add column storage_gb integer;
-- One that holds more than the default already keeps room to grow.
update services set storage_gb =
  greatest(case when memory_gbs is null then 10 else greatest(10, 5 * memory_gbs) end, ceil(1.5 * coalesce(storage_mb, 0) / 1000));
update services set doc = replace(doc, '"volume_type":"local"', '"storage_gb":' || storage_gb || ',"volume_type":"local"');
alter table services alter column storage_gb set not null;

-- Deleted, and removed as soon as it has stopped: nobody can restore it.
alter table services add column purge boolean not null default false;
