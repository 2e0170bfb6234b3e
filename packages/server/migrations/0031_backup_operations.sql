-- Backups off the machine are operations, which run beside all others.

-- The request, where the row of the service does not say it: {"full": true}.
alter table operations add column request jsonb;

drop index operation_under_way;
create unique index operation_under_way on operations (service_id)
  where finished is null and kind not in ('verifyBackup', 'runBackup');
create unique index backup_under_way on operations (service_id)
  where finished is null and kind = 'runBackup';
