-- The server logs of services on Kubernetes, which keeps them as long as their pods (docs/decisions/0061-kept-logs.md).

create table kept_logs (
  id bigint generated always as identity primary key,
  service_id text not null references services on delete cascade,
  -- A move ends the log: the one of the other region is another one.
  region_code text not null references regions,
  server integer not null,
  -- The pod, by a digest of its uid.
  pod text not null,
  -- The times of the first and the last line, as Kubernetes has them; ns since the epoch.
  from_ns bigint not null,
  until_ns bigint not null,
  -- Compressed JSON lines, the oldest first.
  lines bytea not null,
  kept timestamptz not null default now()
);
-- The lines are compressed already.
alter table kept_logs alter column lines set storage external;
create index kept_logs_of_service on kept_logs (service_id, id);
create index kept_logs_kept on kept_logs (kept);
