/** The parts of a service beside its server, in words for a list. */

type Parts = {
  ha_replicas: { replica_count: number };
  connection_pooler?: unknown;
  read_replica_sets: readonly unknown[];
  vpc_endpoint?: unknown;
};

export function partsOf({
  ha_replicas: { replica_count: standbys },
  connection_pooler: pooler,
  read_replica_sets: { length: sets },
  vpc_endpoint: inside,
}: Parts): string[] {
  return [
    ...(standbys === 0 ? [] : [standbys === 1 ? 'HA' : `HA with ${standbys}`]),
    ...(pooler === undefined ? [] : ['pooler']),
    ...(sets === 0 ? [] : [sets === 1 ? 'replica set' : `${sets} replica sets`]),
    ...(inside === undefined ? [] : ['VPC']),
  ];
}
