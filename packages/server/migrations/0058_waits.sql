-- How long the processes of a server waited for a processor, and its writes for the disk.

alter table samples
  -- Processes that waited for a processor, in thousandths; null: it is not known.
  add column cpu_wait_millis integer,
  -- The part of the time in which its limit held writes back, in thousandths; null: not known.
  add column write_wait_millis integer;

-- The notable waits of the last sample; null: there were none.
alter table services add column waits jsonb;
