-- For how many days a repository keeps the backups of a service; null: as the repository says.
alter table services add column backup_retention_days int
  check (backup_retention_days between 1 and 90);
