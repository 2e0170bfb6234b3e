-- Backups are kept for up to 180 days, as long as Tiger Cloud's clients may ask for.

alter table services
  drop constraint services_backup_retention_days_check,
  add constraint services_backup_retention_days_check
    check (backup_retention_days between 1 and 180);

alter table projects
  drop constraint projects_max_backup_retention_days_check,
  add constraint projects_max_backup_retention_days_check
    check (max_backup_retention_days between 1 and 180);
