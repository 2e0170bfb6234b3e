-- Services that a key makes can fall asleep without being asked to.

alter table api_keys
  -- The time without use after which they do, in seconds; null: as they are asked to.
  add column service_auto_suspend_seconds integer;
