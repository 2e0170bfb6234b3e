-- The web console: one-time links that open it, and the sessions of its browsers. Either stands for a key and ends with it.

create table console_tokens (
  token_hash text primary key, -- sha-256 of 256 random bits, in hexadecimal digits
  kind text not null check (kind in ('link', 'session')),
  public_key text not null references api_keys on delete cascade,
  expires_at timestamptz not null
);
