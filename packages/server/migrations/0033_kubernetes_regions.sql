-- Regions on Kubernetes. The ports of their services are in regions, as those of all regions.

create table kubernetes_regions (
  code text primary key,
  -- The API of its cluster, for people.
  server text not null,
  -- The kubeconfig and the context in it, as JSON, encrypted; null: the service account of the pod
  -- that the control plane runs in.
  sealed bytea,
  -- The name or address at which clients reach the nodes.
  host text not null,
  first_port int not null,
  last_port int not null,
  -- Null: the default class of the cluster.
  storage_class text,
  -- By major version of PostgreSQL.
  images jsonb not null,
  created timestamptz not null default now(),
  check (first_port <= last_port)
);
