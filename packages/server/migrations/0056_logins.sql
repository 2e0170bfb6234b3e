-- Requests of programs for a key of their own, each approved by a person in the web console. The
-- key is made when its program collects it, so its secret is stored nowhere.

create table login_requests (
  code_hash text primary key,
  user_code text not null unique,
  client_name text not null,
  address text not null,
  -- of a program that a browser returns to: OAuth 2.0 with PKCE
  code_challenge text,
  redirect_uri text,
  -- null: nobody has answered yet
  approved boolean,
  answered_by text references api_keys on delete cascade,
  role text check (role in ('admin', 'developer', 'viewer')),
  key_expires_at timestamptz,
  created timestamptz not null default now(),
  expires_at timestamptz not null,
  check ((code_challenge is null) = (redirect_uri is null)),
  check ((approved is null) = (answered_by is null)),
  check (approved is not true or role is not null)
);

create index login_requests_expired on login_requests (expires_at);
create index login_requests_answered_by on login_requests (answered_by);
