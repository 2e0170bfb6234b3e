-- Moves of the data of a service into a newer major version of PostgreSQL.

-- The one that is under way: {"id", "to", "undo", "problem"}; and the last one that was made, for as
-- long as it can be undone: {"id", "from", "at"}.
alter table services add column upgrade jsonb, add column upgraded jsonb;

-- A trial runs beside the operations of a service, as a verification does; one of each at a time. Its
-- request is {"major": 18}.
drop index operation_under_way, verification_under_way, backup_under_way;
create unique index operation_under_way on operations (service_id)
  where finished is null and kind not in ('verifyBackup', 'runBackup', 'tryUpgrade');
create unique index operation_beside on operations (service_id, kind)
  where finished is null and kind in ('verifyBackup', 'runBackup', 'tryUpgrade');
