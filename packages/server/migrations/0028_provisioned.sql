-- Whether a service was provisioned: users may have written to it, so that it is never made again
-- without its data.
alter table services add column provisioned boolean not null default false;

-- Before, this was known on the disk only. A service that was made, and has run since, is
-- provisioned; those that are still being made are noticed when they are.
update services s set provisioned = true
where project_id is not null and parent_id is null
  and (
    status = 'READY'
    or exists (
      select from operations o
      where o.service_id = s.id and o.status = 'succeeded'
        and o.kind in ('create', 'fork', 'start', 'restart', 'resize', 'restore', 'repair')
    )
    -- Old operations are not kept.
    or not exists (
      select from operations o where o.service_id = s.id and o.kind in ('create', 'fork')
    )
  );
