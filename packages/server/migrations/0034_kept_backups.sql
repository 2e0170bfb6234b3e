-- Deleted services whose backups are in a repository: {"repository", "since", "until", "isRemoved"}.
alter table services add column kept jsonb;

-- Those services give their ports up with their data on this machine.
alter table services
  drop constraint services_region_code_port_key,
  drop constraint services_region_code_pooler_port_key;
create unique index services_port on services (region_code, port) where kept is null;
create unique index services_pooler_port on services (region_code, pooler_port) where kept is null;
create or replace view promised_ports as
  select region_code, port, format('service %s', id) as holder from services where kept is null
  union all
  select region_code, pooler_port, format('the pooler of service %s', id) from services
  where pooler_port is not null and kept is null
  union all
  select region_code, port, format('server %s of service %s', server, service_id) from server_ports;
