-- Keys that may do less, projects with limits, and answers that are given once.

-- A key for agents: dry_run_only changes nothing at all, fork_only nothing but forks that it made.
alter table api_keys
  add column dry_run_only boolean not null default false,
  add column fork_only boolean not null default false,
  add column created_by text; -- the key that made it; null: the first start

-- The key that asked for it; null: made before this was noted, or a spare.
alter table services add column created_by text;

-- An admin key of the operator project manages projects and their limits. Null: no limit.
alter table projects
  add column operator boolean not null default false,
  add column max_services integer check (max_services >= 0),
  add column max_replica_sets integer check (max_replica_sets >= 0),
  add column max_cpu_millis integer check (max_cpu_millis >= 0),
  add column max_memory_gbs integer check (max_memory_gbs >= 0);
update projects set operator = true where id = (select id from projects order by created, id limit 1);
create unique index operator_project on projects (operator) where operator;

-- What was answered to a call with an Idempotency-Key, written with the change itself.
create table kept_answers (
  public_key text not null references api_keys,
  lookup bytea not null,   -- HMAC of the Idempotency-Key under the secret half of the API key
  request bytea not null,  -- hash of method, path and body
  sealed bytea not null,   -- the answer, encrypted under a key derived from the Idempotency-Key and the secret half of the API key
  created timestamptz not null default now(),
  primary key (public_key, lookup)
);
create index kept_answers_created on kept_answers (created);

-- What a project has, as its limits count it: what is deleted counts no more, what is paused does.
create view project_usage as
  select project_id, count(*) filter (where parent_id is null)::int as services, count(*) filter (where parent_id is not null)::int as replica_sets,
         coalesce(sum(cpu_millis * case when parent_id is null then replica_count + 1 else jsonb_array_length(members) end), 0)::int as cpu_millis,
         coalesce(sum(memory_gbs * case when parent_id is null then replica_count + 1 else jsonb_array_length(members) end), 0)::int as memory_gbs
  from services where project_id is not null and deleted_at is null group by project_id;
