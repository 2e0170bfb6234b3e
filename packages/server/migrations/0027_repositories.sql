-- Repositories: where backups are kept off the machine.

create table repositories (
  id text primary key,
  name text not null unique,
  type text not null,
  -- Where it is, for people: without credentials.
  location text not null,
  -- The storage with the credentials, and the passphrase of its encryption, as JSON, encrypted.
  sealed bytea not null,
  -- The repository names this as its owner while it is this installation's.
  owner text not null,
  retention_days int not null,
  -- The data of the control plane in it is of this moment.
  control_saved timestamptz,
  -- Why the services, and the data of the control plane, could not be sent the last time.
  problem text,
  control_problem text,
  -- Another installation has taken it over: nothing is sent to it any more.
  is_lost boolean not null default false,
  created timestamptz not null default now()
);

-- The repository that lost data of a service is restored from.
alter table services add column recovery jsonb;
