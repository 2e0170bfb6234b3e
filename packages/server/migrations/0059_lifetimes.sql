-- When a service is deleted by itself, and the bounds that a key sets to the services that it makes.

alter table services
  -- null: it does not expire.
  add column expires_at timestamptz,
  -- Whether it cannot be restored after it has expired.
  add column purge_on_expiry boolean not null default false,
  -- When the event service.expiring is due; null: it was written, or the service does not expire.
  add column expiry_warning_at timestamptz;
create index services_expiring on services (expires_at) where expires_at is not null;

alter table api_keys
  -- The lifetime of services that are made without one, in seconds; null: they do not expire.
  add column service_ttl_seconds integer,
  -- The longest lifetime; null: any, or none.
  add column max_service_ttl_seconds integer,
  -- How many services that it made are there at a time; null: any number.
  add column max_services integer;
