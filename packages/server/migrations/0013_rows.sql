-- Caps and pruning of the tables that a key can make grow: docs/metadata-database.md.

-- The newest of a key are kept; expired ones are pruned.
create index console_tokens_of_key on console_tokens (public_key, kind, expires_at desc);
create index console_tokens_expired on console_tokens (expires_at);

-- Keys of a project are counted; those that ended are pruned. least() ignores what is null.
create index api_keys_of_project on api_keys (project_id, created, public_key);
create index api_keys_ended on api_keys (least(revoked_at, expires_at)) where revoked_at is not null or expires_at is not null;

-- A delivery that was never tried goes with its event.
drop index deliveries_ended;
create index deliveries_created on deliveries (created);

-- Refused calls of one key are counted in one entry. last_at: the last of them; null: there is one.
alter table audit_log
  add column count integer not null default 1 check (count > 0),
  add column last_at timestamptz;
