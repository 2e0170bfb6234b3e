/** Read replica sets: their calls, refusals, metrics and the command line. */
import {
  afterAll,
  afterEach,
  beforeAll,
  describe as anyDescribe,
  expect,
  test as anyTest,
} from 'vitest';
import { type Installation } from './harness.ts';
import { type ServiceAccess } from './ha-load.ts';
import { openMetadata } from './metadata.ts';
import { findProgram } from './probe.ts';
import {
  installForSets,
  SMALL,
  accepted,
  pathOf,
  post,
  createPlain,
  setsOf,
  untilSet,
  untilGone,
  createSet,
  read,
  write,
  once,
  portsOf,
  untilShown,
  withTable,
  type Following,
  untilServing,
} from './sets.ts';
import { untilExpected } from './until.ts';

const pgbouncer = (await findProgram('pgbouncer')) !== null;

// Without HAProxy there are no sets.
const installed = (await findProgram('haproxy')) !== null;

const describe = anyDescribe.runIf(installed);

const test = anyTest.runIf(installed);

let cloud: Installation;

beforeAll(async () => {
  cloud = await installForSets();
});

afterEach(() => cloud.tidy());
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

/** A set looks like a service, but is none of its project. */
async function expectService({ service, id, endpoint }: Following): Promise<void> {
  expect(await cloud.get(id)).toMatchObject({
    service_id: id,
    service_type: 'POSTGRES',
    status: 'READY',
    endpoint,
    forked_from: {
      project_id: cloud.projectId,
      service_id: service.service_id,
      is_standby: true,
    },
    read_replica_sets: [],
    resources: [{ spec: { cpu_millis: 250, memory_gbs: 1 } }],
  });
  // A set is none of the services of the project.
  const { body: services } = await cloud.request('GET', '/services');
  expect(JSON.stringify(services)).not.toContain(`"service_id":"${id}"`);
}

/** The nodes whose slots keep rows on the primary that a query of them may see. */
const KEPT = 'select count(xmin)::int as kept from pg_replication_slots';

/** A set is for reports at first, and can be for lookups. */
async function expectPurposes(set: Following, service: ServiceAccess): Promise<void> {
  await untilExpected('the primary keeps the rows that nodes see', async () =>
    expect(await once(write(service), KEPT)).toEqual([{ kept: 2 }]),
  );
  expect(await post(set, 'setPurpose', { purpose: 'lookups' })).toMatchObject({
    status: 200,
    body: { message: 'the set is for lookups' },
  });
  await untilExpected('the primary keeps no rows for nodes', async () =>
    expect(await once(write(service), KEPT)).toEqual([{ kept: 0 }]),
  );
}

describe('every call', () => {
  test('create, list, get, resize, setEnvironment and delete of a set answer', async () => {
    const service = await withTable('calls');
    const list = `/services/${service.service_id}/replicaSets`;
    expect((await cloud.request('GET', list)).body).toEqual([]);
    const answer = await cloud.request('POST', list, { name: 'readers', nodes: 2, ...SMALL });
    accepted(answer);
    const { id, endpoint } = Object(answer.body);
    const set = { service, id, endpoint };
    const shape = {
      id,
      name: 'readers',
      nodes: 2,
      ...SMALL,
      endpoint,
      metadata: { environment: 'DEV' },
      purpose: 'reports',
    };
    expect(answer.body).toEqual({ ...shape, status: 'creating' });
    expect(answer.headers.get('Operation-Id')).toMatch(/^[a-z0-9]{10}$/);
    await untilSet(set, 'active');
    expect((await cloud.request('GET', list)).body).toEqual([{ ...shape, status: 'active' }]);
    expect(await setsOf(service)).toEqual([{ ...shape, status: 'active' }]);
    const detail = await untilServing(set, [1, 2]);
    expect(detail).toMatchObject({
      ...shape,
      status: 'active',
      lag_limit: { bytes: 4_194_304, seconds: 600 },
    });
    await expectService(set);
    await untilShown(set, 1);
    expect(await once(read(set), 'select n, pg_is_in_recovery() as reads_only from t')).toEqual([
      { n: 1, reads_only: true },
    ]);
    await expect(once(read(set), 'insert into t values (2)')).rejects.toThrow(/read-only/);
    expect((await portsOf(set)).size).toBe(2);

    expect(await post(set, 'setEnvironment', { environment: 'PROD' })).toMatchObject({
      status: 200,
      body: { message: 'the environment is PROD' },
    });
    expect((await setsOf(service))[0]?.metadata).toEqual({ environment: 'PROD' });
    expect((await cloud.get(service.service_id)).metadata).toEqual({ environment: 'DEV' });

    await expectPurposes(set, service);

    expect(
      (await cloud.request('GET', `/services/${id}/logs?node=2&search=ready`)).body,
    ).toMatchObject({
      logs: [expect.stringContaining('ready to accept read-only connections')],
    });
    const removed = await cloud.request('DELETE', pathOf(set));
    expect(removed).toMatchObject({ status: 202, body: '' });
    expect((await setsOf(service))[0]?.status ?? 'gone').toMatch(/deleting|gone/);
    await untilGone(set);
    expect(await setsOf(service)).toEqual([]);
    expect((await cloud.request('GET', `/services/${id}`)).status).toBe(404);
    expect((await cloud.get(service.service_id)).status).toBe('READY');
    const slots = await once<{ n: number }>(
      write(service),
      'select count(*)::int as n from pg_replication_slots',
    );
    expect(slots).toEqual([{ n: 0 }]);
    const kinds = (await cloud.operations(id)).map(({ kind, status }) => `${kind} ${status}`);
    expect(kinds.toSorted()).toEqual([
      'create succeeded',
      'delete succeeded',
      'setEnvironment succeeded',
      'setPurpose succeeded',
    ]);
    expect(await cloud.audit()).toEqual([]);
  });
});

const whole = { name: 'readers', nodes: 1, ...SMALL };

async function refused(
  path: string,
  body: unknown,
  code: string,
  text: string,
  status = 400,
): Promise<void> {
  const answer = await cloud.request('POST', path, body);
  expect({ path, ...answer }, JSON.stringify(body)).toMatchObject({
    status,
    body: { code, message: expect.stringContaining(text) },
  });
}

async function expectCreatesRefused(list: string): Promise<void> {
  for (const missing of ['name', 'nodes', 'cpu_millis', 'memory_gbs'])
    await refused(list, { ...whole, [missing]: undefined }, 'INVALID_REQUEST', missing);
  for (const nodes of [0, 11, 1.5, '2', null])
    await refused(list, { ...whole, nodes }, 'INVALID_REQUEST', 'nodes');
  await refused(list, { ...whole, name: '' }, 'INVALID_REQUEST', 'name');
  await refused(list, { ...whole, name: 'x'.repeat(129) }, 'INVALID_REQUEST', 'name');
  await refused(
    list,
    { ...whole, cpu_millis: 250, memory_gbs: 2 },
    'INVALID_REQUEST',
    '250/1, 500/2, 1000/4',
  );
  await refused(list, { ...whole, cpu_millis: 'shared' }, 'INVALID_REQUEST', 'cpu_millis');
  await refused(list, { ...whole, noodes: 1 }, 'INVALID_REQUEST', 'nodes');
}

/** Under wrong ids, and in the place of a service. */
async function expectWrongPathsRefused(service: ServiceAccess, set: Following) {
  const list = `/services/${service.service_id}/replicaSets`;
  for (const id of ['nosuchidxx', service.service_id, '%00', 'x'.repeat(200)]) {
    for (const action of [
      'resize',
      'setEnvironment',
      'setPurpose',
      'enablePooler',
      'disablePooler',
    ])
      await refused(
        `${list}/${id}/${action}`,
        { not: 'looked at' },
        'NOT_FOUND',
        'no read replica set with that id exists',
        404,
      );
    expect((await cloud.request('DELETE', `${list}/${id}`)).status).toBe(404);
    expect((await cloud.request('GET', `${list}/${id}`)).status).toBe(404);
  }
  // The set does not belong to another service.
  const other = await createPlain('another');
  expect(
    (await cloud.request('GET', `/services/${other.service_id}/replicaSets/${set.id}`)).status,
  ).toBe(404);
  expect(
    (await cloud.request('DELETE', `/services/${other.service_id}/replicaSets/${set.id}`)).status,
  ).toBe(404);
  // As a service it can be looked at, and that is all.
  for (const [path, body] of [
    ['replicaSets', whole],
    ['stop', undefined],
    ['resize', { cpu_millis: '500' }],
    ['forkService', { fork_strategy: 'NOW' }],
    ['setHA', { replica_count: 1 }],
  ] as const)
    await refused(
      `/services/${set.id}/${path}`,
      body,
      'INVALID_REQUEST',
      `is a read replica set of ${service.service_id}`,
    );
  expect((await cloud.request('DELETE', `/services/${set.id}`)).status).toBe(400);
}

test('a refused call says why', async () => {
  const service = await withTable('refused');
  const list = `/services/${service.service_id}/replicaSets`;
  await expectCreatesRefused(list);

  const set = await createSet(service, 1);
  await refused(pathOf(set, '/setEnvironment'), {}, 'INVALID_REQUEST', 'environment');
  await refused(
    pathOf(set, '/setEnvironment'),
    { environment: 'TEST' },
    'INVALID_REQUEST',
    'environment',
  );
  await refused(pathOf(set, '/setPurpose'), { purpose: 'speed' }, 'INVALID_REQUEST', 'lookups');
  await refused(pathOf(set, '/resize'), { cpu_millis: '300' }, 'INVALID_REQUEST', '250/1');
  await refused(pathOf(set, '/resize'), {}, 'INVALID_REQUEST', 'cpu_millis');
  await expectWrongPathsRefused(service, set);
  // The same size: nothing to do.
  const same = await post(set, 'resize', { cpu_millis: '250', memory_gbs: '1' });
  accepted(same);
  expect(same.headers.get('Operation-Id')).toBeNull();
  // At most twenty nodes of a service; a set that would be the twenty-first is refused.
  const { db, close } = await openMetadata(cloud.home);
  const metadata = (sets: unknown[]) =>
    db
      .updateTable('services')
      .set({ read_replica_sets: JSON.stringify(sets) })
      .where('id', '=', service.service_id)
      .execute();
  const [shown] = await setsOf(service);
  await metadata([{ ...shown, nodes: 20 }]);
  await refused(
    list,
    whole,
    'LIMIT_EXCEEDED',
    'at most 20 nodes together, and 20 of them are taken',
    422,
  );
  await metadata([shown]);
  await close();
  await cloud.request('POST', `/services/${service.service_id}/stop`);
  await cloud.until(service.service_id, 'PAUSED');
  await refused(list, whole, 'INVALID_STATE', 'cannot createReplicaSet a service that is PAUSED');
  await refused(pathOf(set, '/resize'), { cpu_millis: '500' }, 'INVALID_STATE', 'PAUSED');
  // A set of a paused service can be deleted.
  expect((await cloud.request('DELETE', pathOf(set))).status).toBe(202);
  await untilGone(set);
  await cloud.request('POST', `/services/${service.service_id}/start`);
  await cloud.until(service.service_id, 'READY');
  expect(await once(write(service), 'select count(*)::int as n from pg_replication_slots')).toEqual(
    [{ n: 0 }],
  );
});

anyTest.runIf(!installed)(
  'without HAProxy a set is refused with the command that installs it',
  async () => {
    const service = await createPlain('none');
    expect(
      await cloud.request('POST', `/services/${service.service_id}/replicaSets`, {
        name: 'none',
        nodes: 1,
        ...SMALL,
      }),
    ).toMatchObject({
      status: 422,
      body: {
        code: 'UNAVAILABLE_HERE',
        message: expect.stringContaining('apt-get install haproxy'),
      },
    });
  },
);

test('each member and each node has metrics, in series and for Prometheus', async () => {
  const service = await withTable('figures', { replica_count: 1 });
  const set = await createSet(service, 2);
  const series = async (
    id: string,
    name: string,
  ): Promise<{ labels: { node: string }; data: { value: number | null }[] }[]> => {
    const to = new Date(Date.now() + 60_000).toISOString();
    const from = new Date(Date.now() - 3_600_000).toISOString();
    const { body } = await cloud.request('POST', `/services/${id}/metrics/series`, {
      name,
      from,
      to,
      bucket_seconds: 7200,
    });
    return Object(body);
  };
  const nodes = async (id: string, name: string) =>
    (await series(id, name))
      .filter(({ data }) => data.some(({ value }) => value !== null))
      .map(({ labels }) => labels.node);
  await untilExpected('both nodes of the set have samples', async () =>
    expect(await nodes(set.id, 'memory_bytes')).toEqual(['1', '2']),
  );
  expect(await nodes(set.id, 'lag_bytes')).toEqual(['1', '2']);
  await untilExpected('primary and standby have samples', async () =>
    expect(await nodes(service.service_id, 'memory_bytes')).toEqual(['0', '1']),
  );
  const text = await (await fetch(`http://127.0.0.1:${cloud.port}/metrics`)).text();
  expect(text).toMatch(
    new RegExp(`howdah_replica_lag_bytes\\{service="${set.id}",node="2"\\} \\d+`),
  );
  expect(text).toMatch(new RegExp(`howdah_replica_serving\\{service="${set.id}",node="1"\\} 1`));
  expect(text).toMatch(
    new RegExp(`howdah_replica_lag_seconds\\{service="${service.service_id}",node="1"\\} `),
  );
});

test('the command line creates, shows, changes and deletes a set', { tags: 'slow' }, async () => {
  const service = await withTable('by command');
  const made = await cloud.cli(
    'replica-set',
    'create',
    service.service_id,
    '--name',
    'readers',
    '--nodes',
    '1',
    '--cpu-millis',
    '250',
    '--memory-gbs',
    '1',
  );
  // The periodic measurement of lag may configure the gateway before the step does.
  const lastStep =
    /✓ clone primary \(node 1\)[^]*✓ (route gateway to nodes|start PostgreSQL \(node 1\))/;
  expect(made).toMatchObject({ code: 0, stderr: expect.stringMatching(lastStep) });
  expect(made.stdout).toMatch(
    /^[a-z0-9]{10}, read-only, with the users and passwords of its service: 127\.0\.0\.1:\d+\/tsdb/,
  );
  const [set] = await setsOf(service);
  expect((await cloud.cli('replica-set', 'list', service.service_id)).stdout).toMatch(
    new RegExp(`^readers +1 +active +0.25 +1 GB +127.0.0.1:${set?.endpoint.port}`, 'm'),
  );
  expect(
    JSON.parse((await cloud.cli('replica-set', 'list', service.service_id, '-o', 'json')).stdout),
  ).toEqual([set]);
  expect(
    JSON.parse(
      (await cloud.cli('replica-set', 'get', service.service_id, 'readers', '-o', 'json')).stdout,
    ),
  ).toMatchObject({
    id: set?.id,
    node_states: [{ node: 1, serving: true, detail: 'follows the primary' }],
  });
  expect(
    (await cloud.cli('replica-set', 'resize', service.service_id, 'readers', '--cpu-millis', '500'))
      .stderr,
  ).toContain('✓ restart node 1');
  const refused = await cloud.cli(
    'replica-set',
    'resize',
    service.service_id,
    'readers',
    '--cpu-millis',
    '501',
  );
  expect(refused).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('found --cpu-millis "501"'),
  });
  expect(await cloud.cli('replica-set', 'get', service.service_id, 'none')).toMatchObject({
    code: 3,
    stderr: expect.stringContaining(`howdah replica-set list ${service.service_id} shows them`),
  });
  if (pgbouncer) {
    const pooled = await cloud.cli('replica-set', 'enable-pooler', service.service_id, 'readers');
    expect(pooled.stdout).toMatch(/^POOLER +127\.0\.0\.1:\d+$/m);
    expect(
      (await cloud.cli('replica-set', 'disable-pooler', service.service_id, 'readers')).code,
    ).toBe(0);
  }
  expect((await cloud.cli('replica-set', 'delete', service.service_id, 'readers')).code).toBe(0);
  expect(await setsOf(service)).toEqual([]);
});
