/** Where pods run, and services whose WAL has a volume of its own. */
import { expect, test } from 'vitest';
import { Type } from 'typebox';
import { operator, rig } from './cloud.ts';
import { SUPERUSER, untilSettled } from './faults.ts';
import { CLUSTERS } from './operator/cluster.ts';
import { namespaceOf, podOf, removeAll, settle } from './probe.ts';
import { createKubernetesSubject } from './subject.ts';

const PLACED = Type.Object({
  spec: Type.Object({
    nodeSelector: Type.Optional(Type.Record(Type.String(), Type.String())),
    priorityClassName: Type.Optional(Type.String()),
    topologySpreadConstraints: Type.Optional(
      Type.Array(Type.Object({ topologyKey: Type.String(), whenUnsatisfiable: Type.String() })),
    ),
  }),
});
const NODES = { 'kubernetes.io/os': 'linux' };
const DATA = '/var/lib/postgresql/data/pgdata';

test('a service is placed as its region says, with its WAL on a volume of its own', async () => {
  const priority = 'howdah-test';
  await rig().inNode('kubectl', 'create', 'priorityclass', priority, '--value=1000');
  const subject = await createKubernetesSubject(rig(), operator().api, {
    walStorageClass: rig().storageClass,
    placement: {
      node_selector: NODES,
      tolerations: [{ key: 'dedicated', value: 'databases' }],
      topology_spread: [{ topology_key: 'kubernetes.io/hostname' }],
      priority_class: priority,
    },
  });
  const spec = await subject.newSpec();
  await settle(subject, spec);
  const metadata = { namespace: namespaceOf(subject.projectId), name: podOf(spec.id, 0) };
  const pod = `/api/v1/namespaces/${metadata.namespace}/pods/${metadata.name}`;
  expect(await operator().api.read(pod, PLACED)).toMatchObject({
    spec: {
      nodeSelector: NODES,
      priorityClassName: priority,
      topologySpreadConstraints: [
        { topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'ScheduleAnyway' },
      ],
    },
  });
  const walOf = async (name: string): Promise<string> =>
    (await rig().exec({ metadata: { ...metadata, name } }, `readlink ${DATA}/pg_wal`)).trim();
  expect(await walOf(podOf(spec.id, 0))).toMatch('/var/lib/postgresql/wal/');
  await subject.insertRows(spec, 1000);
  // Snapshots of two volumes are not of one moment: the running service is copied.
  const fork = {
    ...(await subject.newSpec()),
    origin: { parent: spec.id, strategy: 'NOW', targetTime: null },
  } as const;
  await untilSettled(subject, fork);
  expect(await subject.countRows(fork)).toBe(1000);
  expect(await walOf(podOf(fork.id, 0))).toMatch('/var/lib/postgresql/wal/');
  expect(await operator().api.list(`${CLUSTERS}/backups`, Type.Unknown())).toEqual([]);
  // A standby and its volumes come and go, and the volumes grow.
  const replicated = {
    ...spec,
    provisioned: true,
    storageGb: 12,
    ha: { replicas: 1, sync: 1, switchover: false, drill: null },
  } as const;
  await untilSettled(subject, replicated);
  await subject.insertRows(spec, 1);
  expect(await walOf(podOf(spec.id, 1))).toMatch('/var/lib/postgresql/wal/');
  const { stdout } = await rig().inNode(
    ...`kubectl --namespace ${metadata.namespace} get pvc ${metadata.name}-wal`.split(' '),
    ...'-o jsonpath={.spec.resources.requests.storage}'.split(' '),
  );
  expect(stdout).toBe('6G');
  const count = "--tuples-only --command='select count(*) from pg_stat_replication'";
  expect((await rig().exec({ metadata }, `${SUPERUSER} ${count}`)).trim()).toBe('1');
  for (const { id } of [fork, spec]) {
    await removeAll(subject, id);
    expect(await subject.leftovers(id)).toEqual([]);
  }
  await subject.destroy();
  await rig().inNode('kubectl', 'delete', 'priorityclass', priority);
});
