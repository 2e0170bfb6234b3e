-- Forks, and services that are deleted but can still be restored.

-- What a fork begins with: {"parent": id, "strategy": "NOW" | "LAST_SNAPSHOT" | "PITR", "targetTime": date-time or null}; null: empty.
alter table services add column origin jsonb;
-- Set when a deleted service has stopped: from then on nobody sees it, and its data waits to be restored or removed.
alter table services add column deleted_at timestamptz;

create index services_deleted on services (deleted_at) where deleted_at is not null;
