-- The longest backup retention of its own that a service of the project may get; null: no limit.
alter table projects add column max_backup_retention_days int
  check (max_backup_retention_days between 1 and 90);
