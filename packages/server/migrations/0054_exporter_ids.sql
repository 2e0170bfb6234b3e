-- An exporter's id is a UUID: Tiger Cloud's clients refuse to read another. Its former id stays
-- valid in requests, since Prometheus has it in the address that it scrapes.

alter table exporters
  add column former_id text unique;

alter table services drop constraint services_metric_exporter_id_fkey;

update exporters set
  former_id = id,
  id = gen_random_uuid()::text,
  config = config - 'include_pg_metrics' || case
    when config ? 'include_pg_metrics'
    then jsonb_build_object('enable_pg_metrics', config -> 'include_pg_metrics')
    else '{}'
  end;

update services s set
  metric_exporter_id = e.id,
  doc = replace(
    s.doc,
    format('"metric_exporter_id":"%s"', e.former_id),
    format('"metric_exporter_id":"%s"', e.id))
from exporters e where e.former_id = s.metric_exporter_id;

alter table services
  add constraint services_metric_exporter_id_fkey
  foreign key (metric_exporter_id) references exporters;
