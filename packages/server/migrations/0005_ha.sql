-- High availability: the members of a service, which of them takes writes, and how many shall follow it.

alter table services
  -- wanted
  add column replica_count integer not null default 0,
  add column sync_replica_count integer not null default 0,
  -- A member that shall no longer be the primary: a switchover was asked for. Null: none was.
  add column leave_member integer,
  -- A drill that was asked for and has not begun: 'failover' or 'switchover'.
  add column drill text,
  -- The servers of the service: [{"n": 0, "port": 20001}, …], each on a port of the loopback address of its own, with a gateway on the
  -- service's port before them. Empty: one server, which listens on the service's port itself.
  add column members jsonb not null default '[]',
  -- The member that takes writes. Nobody is promoted before it stands here.
  add column primary_member integer not null default 0,
  add check (sync_replica_count <= replica_count);

-- Every port that is promised, and to what.
create view promised_ports as
  select region_code, port, format('service %s', id) as holder from services
  union all
  select region_code, pooler_port, format('the pooler of service %s', id) from services where pooler_port is not null
  union all
  select region_code, (member ->> 'port')::integer, format('member %s of service %s', member ->> 'n', id)
  from services, jsonb_array_elements(members) as member where members <> '[]';
