-- Leases that were never given back are found without reading all services.
create index services_leased on services (lease_until) where lease_until is not null;
