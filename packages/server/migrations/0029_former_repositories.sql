-- The problems of services with a repository are in the states of their regions.
alter table repositories drop column problem;

-- Repositories that were removed, or whose adding was interrupted. Only their passphrase reads what
-- is in them, and they name their owner: one that is added again goes on with both.
create table former_repositories (
  location text primary key,
  id text not null,
  sealed bytea not null,
  owner text not null,
  noted timestamptz not null default now()
);

create index services_in_recovery on services ((recovery ->> 'repository'))
  where recovery is not null;
