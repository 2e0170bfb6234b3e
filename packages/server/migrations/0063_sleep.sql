-- Services whose servers stop while nobody uses them.

alter table services
  -- The time without use after which the service falls asleep; null: never.
  add column auto_suspend_seconds integer,
  -- Since when the service sleeps; null: it is awake.
  add column suspended_at timestamptz,
  -- When the service was last used before it fell asleep.
  add column last_active_at timestamptz;
create index services_auto_suspend on services (region_code) where auto_suspend_seconds is not null;
