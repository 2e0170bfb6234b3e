-- Events of VPCs and peerings, and of services that go into one or leave it: as 0009_events.sql writes those of services.

create function vpc_changed() returns trigger language plpgsql as $$
declare
  vpc vpcs := coalesce(new, old);
  is_now text := case
    when tg_op = 'INSERT' then 'created'
    when tg_op = 'DELETE' then 'deleted'
    when new.deleting then 'deleting'
    else 'ready'
  end;
begin
  perform emit_event(vpc.project_id, 'vpc.status', json_build_object('vpc_id', vpc.id::text, 'name', vpc.name, 'status', is_now));
  return null;
end $$;
create constraint trigger vpc_begun after insert on vpcs deferrable initially deferred for each row
  execute function vpc_changed();
-- Made for the first time, and about to go; what is made of it later is told of by what it was made for.
create constraint trigger vpc_changed after update on vpcs deferrable initially deferred for each row
  when ((old.made = 0 and new.made > 0 and not new.deleting) or old.deleting <> new.deleting)
  execute function vpc_changed();
create constraint trigger vpc_removed after delete on vpcs deferrable initially deferred for each row
  execute function vpc_changed();

create function peering_changed() returns trigger language plpgsql as $$
declare
  peering peerings := coalesce(new, old);
  project text := (select project_id from vpcs where id = peering.vpc_id);
begin
  perform emit_event(project, 'peering.status',
    json_strip_nulls(json_build_object(
      'vpc_id', peering.vpc_id::text,
      'peering_id', peering.id::text,
      'from', case when tg_op <> 'INSERT' then old.status end,
      'status', case when tg_op = 'DELETE' then 'deleted' else new.status end,
      'error_message', case when tg_op <> 'DELETE' then new.error_message end)));
  return null;
end $$;
create constraint trigger peering_begun after insert on peerings deferrable initially deferred for each row
  execute function peering_changed();
create constraint trigger peering_changed after update on peerings deferrable initially deferred for each row
  when (old.status <> new.status)
  execute function peering_changed();
create constraint trigger peering_removed after delete on peerings deferrable initially deferred for each row
  execute function peering_changed();

create function service_moved() returns trigger language plpgsql as $$
begin
  perform emit_event(new.project_id, 'service.vpc',
    json_strip_nulls(json_build_object(
      'service_id', new.id, 'from', old.vpc_id::text, 'vpc_id', new.vpc_id::text, 'operation_id', new.operation_id)));
  return null;
end $$;
create constraint trigger service_moved after update on services deferrable initially deferred for each row
  when (new.project_id is not null and old.vpc_id is distinct from new.vpc_id)
  execute function service_moved();
