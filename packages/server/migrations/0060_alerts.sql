-- Alerts: destinations of a project, what it has set of the rules, incidents, and messages to send.

create table alert_destinations (
  id text primary key,
  project_id text not null references projects on delete cascade,
  name text not null,
  type text not null check (type in ('smtp', 'slack', 'teams', 'pagerduty', 'webhook')),
  -- All that answers may show.
  config jsonb not null,
  -- The rest, as sealed JSON.
  secret bytea not null,
  -- Hours in which messages are held; null: none.
  quiet_hours jsonb,
  created timestamptz not null default now(),
  last_success timestamptz,
  -- Why the last attempt failed; null: it did not.
  last_error text
);
create index alert_destinations_of_project on alert_destinations (project_id, created, id);

create table alert_rules (
  project_id text not null references projects on delete cascade,
  rule text not null,
  enabled boolean not null,
  -- null: as by default.
  threshold integer,
  for_minutes integer,
  primary key (project_id, rule)
);

create table alert_incidents (
  id bigint generated always as identity primary key,
  project_id text not null references projects on delete cascade,
  rule text not null,
  subject text not null,
  service_id text,
  about text not null,
  message text not null,
  -- Since when its condition holds.
  since timestamptz not null,
  -- null: the condition has not held for long enough, and nobody sees the incident.
  opened timestamptz,
  -- Since when the condition does not hold; null: it holds.
  cleared timestamptz,
  resolved timestamptz
);
create unique index alert_incidents_unresolved on alert_incidents (project_id, rule, subject)
  where resolved is null;
create index alert_incidents_of_project on alert_incidents (project_id, id desc)
  where opened is not null;
create index alert_incidents_resolved on alert_incidents (resolved) where resolved is not null;

-- Messages that are not sent yet. They are removed when sent, or given up.
create table alert_messages (
  id bigint generated always as identity primary key,
  destination_id text not null references alert_destinations on delete cascade,
  body jsonb not null,
  -- Whether it waits for the end of the quiet hours.
  held boolean not null,
  attempts integer not null default 0,
  next_at timestamptz not null default now(),
  created timestamptz not null default now()
);
create index alert_messages_due on alert_messages (destination_id, id);
create index alert_messages_created on alert_messages (created);
