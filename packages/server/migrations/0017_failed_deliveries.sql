-- A delivery that is given up has failed, as an operation has (docs/glossary.md).

alter table deliveries drop constraint deliveries_status_check;
update deliveries set status = 'failed' where status = 'dead';
alter table deliveries add constraint deliveries_status_check check (status in ('pending', 'delivered', 'failed'));
