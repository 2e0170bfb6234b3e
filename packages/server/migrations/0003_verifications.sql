-- Backups that prove themselves, and warnings on services.

-- What will become trouble: [{"code": …, "message": …}].
alter table services add column warnings jsonb not null default '[]';

-- One operation at a time on a service; proving its newest backup goes on beside it, one of these at a time as well.
drop index operation_under_way;
create unique index operation_under_way on operations (service_id) where finished is null and kind <> 'verifyBackup';
create unique index verification_under_way on operations (service_id) where finished is null and kind = 'verifyBackup';
