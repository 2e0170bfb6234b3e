-- Allow lists: the networks whose clients may connect to the public endpoint of a service.

create table allow_lists (
  id text primary key,
  project_id text not null references projects,
  description text not null,
  -- As 203.0.113.0/24 and 2001:db8::/32, in the spelling of PostgreSQL.
  cidr_blocks text[] not null,
  created timestamptz not null default now()
);
create index allow_lists_of_project on allow_lists (project_id, created, id);

alter table services
  add column allow_list_id text references allow_lists,
  -- A VPC and an allow list both limit the clients of a service.
  drop constraint services_check4,
  add constraint services_allowed_networks_check
    check ((vpc_id is null and allow_list_id is null) = (allowed_networks is null));
create index services_of_allow_list on services (allow_list_id) where allow_list_id is not null;

create function allow_list_changed() returns trigger language plpgsql as $$
declare
  list allow_lists := coalesce(new, old);
begin
  perform emit_event(list.project_id, 'allow_list.status',
    json_build_object(
      'allow_list_id', list.id,
      'description', list.description,
      'cidr_blocks', list.cidr_blocks,
      'status', case tg_op
        when 'INSERT' then 'created' when 'UPDATE' then 'changed' else 'deleted' end));
  return null;
end $$;
create constraint trigger allow_list_changed after insert or update or delete on allow_lists
  deferrable initially deferred for each row execute function allow_list_changed();

create function service_allow_list_changed() returns trigger language plpgsql as $$
begin
  perform emit_event(new.project_id, 'service.allow_list',
    json_strip_nulls(json_build_object(
      'service_id', new.id,
      'from', old.allow_list_id,
      'allow_list_id', new.allow_list_id,
      'operation_id', new.operation_id)));
  return null;
end $$;
create constraint trigger service_allow_list_changed after update on services
  deferrable initially deferred for each row
  when (new.project_id is not null and old.allow_list_id is distinct from new.allow_list_id)
  execute function service_allow_list_changed();
