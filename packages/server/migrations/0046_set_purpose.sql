-- The purpose of a read replica set: how its nodes treat a query that is in the way of a change.

alter table services
  add column purpose text not null default 'reports' check (purpose in ('reports', 'lookups'));
