-- VPCs, their peerings, and the addresses in them that services have.

create table vpcs (
  id bigint generated always as identity (start with 1000) primary key,
  project_id text not null references projects,
  region_code text not null references regions,
  name text not null,
  cidr cidr not null,
  created timestamptz not null default now(),
  -- The address handed out last, counted from the network's own: one that was given back rests before somebody else gets it.
  last_host integer not null default 1,
  -- Nobody sees it any more; gone once its network is.
  deleting boolean not null default false,
  -- What of it was changed, and what of that the engine has made true; see store/vpcs.ts.
  wanted integer not null default 1,
  made integer not null default 0
);
create index vpcs_of_project on vpcs (project_id, created, id);

create table peerings (
  id bigint generated always as identity (start with 1000) primary key,
  vpc_id bigint not null references vpcs on delete cascade,
  -- As they were asked for, whatever they name.
  peer_account_id text not null,
  peer_region_code text not null,
  peer_vpc_id text not null,
  -- Whether somebody asked for it; the other side of a peering inside one project is made with it.
  asked boolean not null,
  status text not null check (status in ('pending', 'approved', 'active', 'invalid', 'timeout', 'disabled')),
  error_message text,
  provisioned_id text,
  created timestamptz not null default now(),
  check ((status in ('invalid', 'timeout', 'disabled')) = (error_message is not null)),
  check (status <> 'active' or provisioned_id is not null)
);
create index peerings_of_vpc on peerings (vpc_id, created, id);
create index peerings_to_vpc on peerings (peer_account_id, peer_vpc_id);
create unique index peering_alive on peerings (vpc_id, peer_account_id, peer_region_code, peer_vpc_id)
  where status in ('pending', 'approved', 'active');

alter table services
  add column vpc_id bigint references vpcs,
  -- Its own address in the VPC; null: none, it is kept apart by rules on the addresses of its clients.
  add column vpc_address text,
  -- The source addresses that are let in, as CIDRs: the VPC's and those of its peers; null: all.
  add column admitted text[],
  add check (vpc_id is not null or vpc_address is null),
  add check ((vpc_id is null) = (admitted is null));
create index services_of_vpc on services (vpc_id) where vpc_id is not null;

-- Held from the attach until the service has left for certain.
create table vpc_addresses (
  vpc_id bigint not null references vpcs,
  address inet not null,
  service_id text not null references services,
  primary key (vpc_id, address),
  unique (service_id, vpc_id)
);
