-- Connection poolers. The port is reserved when the pooler is first enabled and kept until the service is removed.

alter table services add column pooler boolean not null default false;
alter table services add column pooler_port integer;

alter table services add check (not pooler or pooler_port is not null);
alter table services add unique (region_code, pooler_port);
