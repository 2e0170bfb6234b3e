-- Events, webhooks that deliver them, and the audit log.

-- What happened, as users are told of it: finished documents, in an order without gaps.
create table events (
  seq bigint primary key,
  project_id text not null,
  at timestamptz not null,
  type text not null,
  doc text not null
);
create index events_of_project on events (project_id, seq);
create sequence event_seq;

-- Up to which event the old ones have been thrown away; no row: none was.
create table event_horizon (pruned bigint not null);

-- Numbers and writes an event. Called when a transaction commits, by the deferred triggers below: it takes the lock as the last thing that
-- it does, and holds it until everybody sees what it wrote. So whoever has read up to a number will never meet a lower one.
create function emit_event(project text, kind text, facts json) returns void language plpgsql as $$
declare
  number bigint;
  moment timestamptz;
begin
  perform pg_advisory_xact_lock(hashtext('howdah events'));
  number := nextval('event_seq');
  moment := clock_timestamp();
  insert into events (seq, project_id, at, type, doc)
  values (number, project, moment, kind,
          json_build_object('id', number::text, 'type', kind, 'timestamp', utc_text(moment), 'data', facts)::text);
  perform pg_notify('howdah_event', project);
end $$;

create function utc_text(moment timestamptz) returns text language sql stable
  return to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- A service that is deleted and can be restored is no more, to those who look.
create function shown_status(status text, deleted_at timestamptz) returns text language sql immutable
  return case when deleted_at is null then status else 'DELETED' end;

create function service_changed() returns trigger language plpgsql as $$
declare
  was text;
  is_now text;
begin
  -- What nobody owned had no status that anybody saw.
  was := case when old.project_id is not null then shown_status(old.status, old.deleted_at) end;
  is_now := shown_status(new.status, new.deleted_at);
  if was is distinct from is_now then
    perform emit_event(new.project_id, 'service.status',
      json_strip_nulls(json_build_object('service_id', new.id, 'from', was, 'status', is_now, 'operation_id', new.operation_id)));
  end if;
  if old.warnings <> new.warnings then
    perform emit_event(new.project_id, 'service.warnings', json_build_object('service_id', new.id, 'warnings', new.warnings));
  end if;
  return null;
end $$;
create constraint trigger service_changed after update on services deferrable initially deferred for each row
  when (new.project_id is not null
        and (old.status <> new.status or old.project_id is null or old.warnings <> new.warnings
             or (old.deleted_at is null) <> (new.deleted_at is null)))
  execute function service_changed();

create function service_removed() returns trigger language plpgsql as $$
begin
  perform emit_event(old.project_id, 'service.status', json_build_object('service_id', old.id, 'from', old.status, 'status', 'DELETED'));
  return null;
end $$;
create constraint trigger service_removed after delete on services deferrable initially deferred for each row
  when (old.project_id is not null and old.deleted_at is null)
  execute function service_removed();

create function operation_changed() returns trigger language plpgsql as $$
declare
  known jsonb := '[]';
  known_error text;
  facts jsonb := jsonb_build_object('operation_id', new.id, 'service_id', new.service_id, 'kind', new.kind, 'requested_by', new.requested_by);
  step jsonb;
begin
  if tg_op = 'INSERT' then
    perform emit_event(new.project_id, 'operation.started', facts::json);
  else
    known := old.steps;
    known_error := old.error;
  end if;
  for step in select value from jsonb_array_elements(new.steps) where not known @> jsonb_build_array(value) loop
    perform emit_event(new.project_id, 'operation.step', (facts || jsonb_build_object('step', step))::json);
  end loop;
  if new.finished is not null then
    perform emit_event(new.project_id, 'operation.finished',
      jsonb_strip_nulls(facts || jsonb_build_object('status', new.status, 'error', new.error))::json);
  elsif new.error is not null and new.error is distinct from known_error then
    perform emit_event(new.project_id, 'operation.failing', (facts || jsonb_build_object('error', new.error))::json);
  end if;
  return null;
end $$;
create constraint trigger operation_begun after insert on operations deferrable initially deferred for each row
  when (new.project_id is not null)
  execute function operation_changed();
create constraint trigger operation_changed after update on operations deferrable initially deferred for each row
  when (new.project_id is not null
        and (old.finished is distinct from new.finished or old.error is distinct from new.error or old.steps <> new.steps))
  execute function operation_changed();

-- A key that is good no more ends what it has open, in every control plane.
create function key_changed() returns trigger language plpgsql as $$
begin
  perform pg_notify('howdah_key', old.public_key);
  return null;
end $$;
create trigger key_changed after update of revoked_at, expires_at on api_keys for each row execute function key_changed();
create trigger key_removed after delete on api_keys for each row execute function key_changed();

create table webhooks (
  id text primary key,
  project_id text not null references projects on delete cascade,
  url text not null,
  types text[] not null, -- of events; empty: all
  secret bytea not null, -- encrypted
  created timestamptz not null default now(),
  -- Events up to this one have their deliveries.
  fanned_out bigint not null,
  lease_until timestamptz
);
create index webhooks_of_project on webhooks (project_id, created, id);

create table deliveries (
  id bigint generated always as identity primary key,
  webhook_id text not null references webhooks on delete cascade,
  message_id text not null,
  type text not null,
  body text not null,
  status text not null default 'pending' check (status in ('pending', 'delivered', 'dead')),
  attempts integer not null default 0,
  next_at timestamptz not null default now(),
  response_status integer,
  error text,
  created timestamptz not null default now(),
  finished timestamptz,
  unique (webhook_id, message_id)
);
create index deliveries_due on deliveries (webhook_id, next_at, id) where status = 'pending';
create index deliveries_of_webhook on deliveries (webhook_id, id desc);
create index deliveries_not_made on deliveries (webhook_id, id desc) where status <> 'delivered';
create index deliveries_ended on deliveries (created) where status <> 'pending';

-- Who asked for what, and what became of it. No content of requests.
create table audit_log (
  id bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  project_id text not null,
  public_key text,
  address text not null,
  call text not null,
  method text not null,
  path text not null,
  service_id text,
  operation_id text,
  status integer not null,
  code text, -- null: it was allowed
  request_id uuid not null unique
);
create index audit_log_of_project on audit_log (project_id, id desc);
create index audit_log_of_service on audit_log (service_id, id desc) where service_id is not null;
create index audit_log_of_operation on audit_log (operation_id) where operation_id is not null;
create index audit_log_of_key on audit_log (project_id, public_key, id desc);
create index audit_log_of_call on audit_log (project_id, call, id desc);
create index audit_log_refused on audit_log (project_id, id desc) where code is not null;
create index audit_log_at on audit_log using brin (at) with (autosummarize = on);

-- What is asked of all services, however many there are, finds its few rows. None of these columns changes more often than due_at.
create index services_by_status on services (status, parent_id) where project_id is not null and deleted_at is null;
create index services_reachable on services (id) where reachable;
create index services_awake on services (id) where power = 'running' or operation_id is not null or deleting;
create index services_with_members on services (region_code) where members <> '[]';
create index services_warning on services (id) where warnings <> '[]';

-- No column that changes while an operation goes on stands in an index.
create index operations_ended on operations (kind, finished desc) where finished is not null;
create index operations_of_kind on operations (project_id, kind, created desc, id);
create index operations_failed on operations (project_id, created desc, id) where error is not null;
create index operations_under_way on operations (project_id, created desc, id) where finished is null;
