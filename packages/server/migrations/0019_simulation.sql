-- The state of a simulated region: its clock and script, and each of its services, as documents.

create table simulated_documents (
  region_code text not null,
  key text not null,
  document jsonb not null,
  primary key (region_code, key)
);
