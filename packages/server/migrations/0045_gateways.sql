-- Regions whose services have names of their own at one port, that of a TLS gateway
-- (docs/decisions/0073-tls-gateway.md).

alter table kubernetes_regions
  -- The services are at ID.DOMAIN; null: at ports of the host.
  add column domain text unique;

alter table services
  -- The host of the pooler; null: that of the service.
  add column pooler_host text;

-- Each service of such a region has the same port, at a host of its own. In regions with ports two
-- services may have had different hosts, so there the ledger of ports keeps them apart alone.
drop index services_port;
create unique index services_port on services (region_code, host, port) where kept is null;
drop index services_pooler_port;
create unique index services_pooler_port
  on services (region_code, coalesce(pooler_host, host), pooler_port) where kept is null;

-- Ports of such a region are not promised to anybody: they are the same for all.
create or replace view promised_ports as
select region_code, port, holder
from (
  select region_code, port, format('service %s', id) as holder from services where kept is null
  union all
  select region_code, pooler_port, format('the pooler of service %s', id) from services
  where pooler_port is not null and kept is null
  union all
  select region_code, port, format('server %s of service %s', server, service_id) from server_ports
  union all
  select move ->> 'to', (move -> 'endpoint' ->> 'port')::int, format('the copy of service %s', id)
  from services where move is not null and move ->> 'state' in ('copy', 'switch', 'abort')
  union all
  select move ->> 'from', (move -> 'source' ->> 'port')::int, format('service %s before its move', id)
  from services where move is not null and move ->> 'state' in ('moved', 'kept')
) as promised
where not exists (
  select from kubernetes_regions r where r.code = promised.region_code and r.domain is not null
);
