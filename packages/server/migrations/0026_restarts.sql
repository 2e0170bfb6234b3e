-- How many restarts of a service were requested: its servers are started again for each.
alter table services add column restarts integer not null default 0;
