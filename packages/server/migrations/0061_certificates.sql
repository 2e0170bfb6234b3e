-- Restore certificates: signed documents of verifications of backups that succeeded, and the keys
-- that sign them.

create table certificate_keys (
  -- the SHA-256 of the public key
  id text primary key,
  public_key text not null,
  -- the private key, encrypted with secrets.key; the newest that can be decrypted signs
  sealed bytea not null,
  created timestamptz not null default now()
);

create table certificates (
  id text primary key,
  service_id text not null references services on delete cascade,
  issued timestamptz not null,
  -- as it was signed
  document text not null
);

create index certificates_of_service on certificates (service_id, issued desc);
create index certificates_issued on certificates (issued);
