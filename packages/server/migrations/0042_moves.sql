-- Moves of services to other regions (docs/decisions/0070-moves-between-regions.md).

alter table services
  -- The move that is under way, or whose source is still kept; null: none.
  add column move jsonb;

create index services_move on services (id) where move is not null;

create or replace view promised_ports as
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
  from services where move is not null and move ->> 'state' in ('moved', 'kept');
