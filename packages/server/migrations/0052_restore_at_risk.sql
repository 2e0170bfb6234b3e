-- The deletion (its deleted_at) of which an event said that the service may be purged early, since the disk fills.

alter table services add column risk_reported_of timestamptz;
