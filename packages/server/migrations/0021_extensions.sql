-- Libraries of extensions that the servers of a service load, and a requested change of an extension.
alter table services
  add column preload text[] not null default '{}',
  add column creates_extension text,
  add column drops_extension text;
