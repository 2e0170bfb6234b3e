/** A region on Kubernetes as its users have it: by the command line, the API and clients. */
import { Type } from 'typebox';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, install, type Installation } from '../test/harness.ts';
import type { Service } from '../test/harness-caller.ts';
import { hasPlugin, operator, poolerImage, rig, s3, untilSound } from './cloud.ts';
import { realOperatorFiles } from './real-operator.ts';
import { until, untilExpected } from '../test/until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await install();
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

async function cli(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await cloud.cli(...args);
  expect(code, `${args.join(' ')}: ${stderr}${stdout}`).toBe(0);
  return stdout;
}

let service: Service & { initial_password: string };
const PASSWORD = 'Another-password-1';

/** Writes a row with a session of its own, by verify-full. @returns the number of rows */
async function writeRow(password: string, to = service): Promise<number> {
  const client = await connectTo(cloud, to, password);
  try {
    await client.query('create table if not exists t (n integer)');
    await client.query('insert into t values (1)');
    return (await client.query('select from t')).rowCount ?? 0;
  } finally {
    await client.end();
  }
}

/** By both extensions: the nearest place, and the number of chunks of the hypertable. */
const NEAREST = `select place::text,
    (select count(*)::integer from show_chunks('metrics')) as chunks
  from metrics order by place <-> '[3.2,1]' limit 1`;

test('a cluster becomes a region, with services that clients reach by TLS', async () => {
  const { host, image, storageClass, kubeconfigPath } = rig();
  await cli(
    ...`region add kube --kubeconfig ${kubeconfigPath} --host ${host} --ports 30500-30599`.split(
      ' ',
    ),
    ...`--storage-class ${storageClass} --image 17=${image}`.split(' '),
    ...'--extensions 17=timescaledb,vector'.split(' '),
    '--pooler-image',
    poolerImage(),
  );
  // The plugin has a double only.
  const notes = ['nodes'];
  if (realOperatorFiles === null) await cli('region', 'object-store', 'kube', ...s3().options);
  else notes.push('object store');
  const findings: { what: string; state: string }[] = JSON.parse(
    await cli('region', 'doctor', 'kube', '-o', 'json'),
  );
  // The rig has one node.
  expect(findings.filter(({ state }) => state !== 'ok')).toMatchObject(
    notes.map((what) => ({ what, state: 'note' })),
  );
  const made = { name: 'orders', region_code: 'kube' };
  service = await cloud.create({ ...made, addons: ['time-series', 'ai'] });
  expect(service.endpoint.host).toBe(host);
  expect(await writeRow(service.initial_password)).toBe(1);
  const client = await connectTo(cloud, service, service.initial_password);
  await client.query(`
    create table metrics (at timestamptz not null, place vector(2));
    select create_hypertable('metrics', 'at', chunk_time_interval => interval '1 day');
    insert into metrics
      select timestamptz '2026-01-01' + n * interval '4 days', format('[%s,1]', n)::vector
      from generate_series(1, 10) n`);
  const { rows } = await client.query(NEAREST);
  expect(rows).toEqual([{ place: '[3,1]', chunks: 10 }]);
  // The database's owner may do with extensions what the owner of an extension may.
  await client.query(`comment on extension timescaledb is 'ours'`);
  await client.end();
});

async function fork(strategy: 'NOW' | 'LAST_SNAPSHOT' = 'NOW'): Promise<typeof service> {
  const { data } = await cloud.client.POST(
    '/projects/{project_id}/services/{service_id}/forkService',
    {
      params: { path: { project_id: cloud.projectId, service_id: service.service_id } },
      body: { fork_strategy: strategy, cpu_millis: 'shared', memory_gbs: 'shared' },
    },
  );
  const { service_id: id = '', initial_password: password = '' } = data ?? {};
  return { ...(await cloud.until(id, 'READY')), initial_password: password };
}

async function expectForked(id: string, ...first: string[]): Promise<void> {
  const [operation] = await cloud.operations(id);
  const isCopied = JSON.stringify(operation).includes('a base backup of it is under way');
  const begin = isCopied ? [] : first; // one backup is taken at a time
  const steps = [...begin, 'create Cluster', 'start PostgreSQL', 'detach from parent', 'connect'];
  expect(operation).toMatchObject({ kind: 'fork', status: 'succeeded' });
  expect(operation?.steps.map(({ name }) => name)).toEqual(steps);
}

async function purge(name: string, id: string): Promise<void> {
  await cli('service', 'delete', name);
  await cli('service', 'purge', id, '--yes');
}

test('a stop goes on after the control plane is killed, and nothing is lost', async () => {
  const { service_id: id, initial_password: password } = service;
  const stopping = cloud.cli('service', 'stop', 'orders');
  await cloud.until(id, 'PAUSING');
  await cloud.stop('SIGKILL');
  await stopping;
  await cloud.up();
  await cloud.until(id, 'PAUSED');
  const made = await fork();
  expect(await writeRow(made.initial_password, made)).toBe(2);
  const client = await connectTo(cloud, made, made.initial_password);
  expect((await client.query(NEAREST)).rows).toMatchObject([{ place: '[3,1]' }]);
  await client.query(`insert into metrics values (now(), '[0,0]')`);
  await client.end();
  await expectForked(made.service_id, 'take snapshot');
  await purge('orders-fork', made.service_id);
  await cli('service', 'start', 'orders');
  expect(await writeRow(password)).toBe(2);
});

const SERVERS = Type.Object({
  spec: Type.Object({ containers: Type.Array(Type.Object({ image: Type.String() })) }),
});

async function imagesOf(label: string): Promise<(string | undefined)[]> {
  const pods = await operator().api.list(`/api/v1/pods?labelSelector=${label}`, SERVERS);
  return pods.map(({ spec }) => spec.containers[0]?.image);
}

/** Gives an image of the node another name, and has the region use it. */
async function setImages(image: string, newer: string, option: string): Promise<void> {
  await rig().inNode('ctr', '--namespace', 'k8s.io', 'images', 'tag', image, newer);
  await cli(
    ...'region set-images kube --extensions 17=timescaledb,vector'.split(' '),
    ...`--image 17=${rig().image}.1 ${option}`.trim().split(' '),
  );
}

test('a service gets another size, image and password, and its log is read', async () => {
  const { service_id: id, initial_password: password } = service;
  const newer = `${rig().image}.1`;
  await setImages(rig().image, newer, '');
  await cli('service', 'resize', 'orders', '--cpu-millis', '1000');
  expect((await cloud.get(id)).status).toBe('READY');
  expect(await imagesOf(`cnpg.io/cluster=s-${id}`)).toEqual([newer]);
  const changed = await cloud.request('POST', `/services/${id}/updatePassword`, {
    password: PASSWORD,
  });
  expect(changed).toMatchObject({ status: 204 });
  expect(await writeRow(PASSWORD)).toBe(3);
  await expect(writeRow(password)).rejects.toThrow('password authentication failed');
  expect(await cli('service', 'logs', 'orders')).toContain('ready to accept connections');
  expect(await cli('query', 'orders', 'select count(*) as found from t')).toMatch(/found\s+3/);
});

test('a service gets a connection pooler, at the port that its answer has', async () => {
  const { service_id: id } = service;
  await cli('service', 'enable-pooler', 'orders');
  const { connection_pooler: pooler } = await cloud.get(id);
  if (pooler === undefined) throw new Error('it has no pooler');
  const client = await connectTo(cloud, { ...service, ...pooler }, PASSWORD);
  expect((await client.query('select from t')).rowCount).toBe(3);
  await client.end();
  const newer = `${poolerImage()}-1`;
  await setImages(poolerImage(), newer, `--pooler-image ${newer}`);
  await untilExpected('the pooler has the newer image', async () =>
    expect(await imagesOf(`howdah.io/pooler=s-${id}`)).toEqual([newer]),
  );
  await cli('service', 'disable-pooler', 'orders');
  const kinds = (await cloud.operations(id)).map(({ kind, steps }) => [kind, steps.at(-1)?.name]);
  expect(kinds).toEqual(
    expect.arrayContaining([
      ['enablePooler', 'start connection pooler'],
      ['disablePooler', 'stop connection pooler'],
    ]),
  );
});

test('a service gets a read replica set, which stops and starts with it', async () => {
  const { service_id: id } = service;
  const options = '--name readers --nodes 1 --cpu-millis 250 --memory-gbs 1';
  await cli('replica-set', 'create', 'orders', ...options.split(' '));
  const sets = async () => (await cloud.get(id)).read_replica_sets;
  const findActive = async () => (await sets()).find(({ status }) => status === 'active');
  const set = await until('the set is active', findActive);
  const count = async (): Promise<number | null> => {
    const client = await connectTo(cloud, { ...service, ...set }, PASSWORD);
    try {
      return (await client.query('select from t')).rowCount;
    } finally {
      await client.end();
    }
  };
  expect(await count()).toBe(3);
  expect(await cli('replica-set', 'get', 'orders', 'readers')).toContain('follows the service');
  await untilSound(cloud);
  await cli('service', 'stop', 'orders');
  expect(await cli('service', 'logs', 'orders')).toContain(' LOG: '); // not always the last ones
  await expect(count()).rejects.toThrow();
  await cli('service', 'start', 'orders');
  await untilExpected('the set has all rows', async () => expect(await count()).toBe(3));
  // A node answers before its start has ended, and no resize begins before that.
  await until('the set is active', findActive);
  await cli('replica-set', 'resize', 'orders', 'readers', '--cpu-millis', '500');
  await until('the set is active', findActive);
  const [operation] = await cloud.operations(set.id);
  expect(operation?.steps.map(({ name }) => name)).toEqual(['restart PostgreSQL', 'connect']);
  await cli('replica-set', 'delete', 'orders', 'readers');
  await untilExpected('the set is deleted', async () => expect(await sets()).toEqual([]));
});

test('a service that runs has figures', async () => {
  const { service_id: id } = service;
  const figure: unknown = expect.any(Number);
  const figures = { memory_mb: figure, milli_cpu: figure, storage_mb: figure };
  await untilExpected('the service has samples', async () =>
    expect((await cloud.get(id)).metrics).toMatchObject(figures),
  );
  const { body } = await cloud.request('POST', `/services/${id}/metrics/series`, {
    name: 'connections',
    from: new Date(Date.now() - 600_000).toISOString(),
    to: new Date().toISOString(),
    fn: 'last',
  });
  expect(JSON.stringify(body)).toMatch(/"value":\d/);
});

test('a service gets a replica, another primary, and a drill with its result', async () => {
  const { service_id: id } = service;
  const act = async (action: string, body?: object): Promise<void> => {
    const { status } = await cloud.request('POST', `/services/${id}/${action}`, body);
    expect({ action, status }).toEqual({ action, status: 202 });
    await cloud.until(id, 'READY');
  };
  await act('setHA', { replica_count: 1, sync_replica_count: 1 });
  await act('switchover');
  await act('drill', { kind: 'failover' });
  expect(await writeRow(PASSWORD)).toBe(4);
  const operations = await cloud.operations(id);
  const stepsOf = (kind: string) =>
    operations.find((one) => one.kind === kind)?.steps.map(({ name }) => name);
  expect(stepsOf('setHA')).toEqual(expect.arrayContaining(['add standby', 'write configuration']));
  expect(stepsOf('switchover')).toContain('switch over to member 1');
  const drill = operations.find(({ kind }) => kind === 'drill');
  expect(drill?.steps.find(({ name }) => name === 'drill')?.detail).toMatch(
    /^no login for \d+\.\d s; member 0 is the primary/,
  );
  // A drill is no failover.
  expect(operations.map(({ kind }) => kind)).not.toContain('failover');
  await act('setHA', { replica_count: 0, sync_replica_count: 0 });
});

test('a service is forked, with a size and a password of its own', async () => {
  // The primary of before may still be coming back as a replica.
  await cloud.until(service.service_id, 'READY');
  const made = await fork();
  expect(await writeRow(made.initial_password, made)).toBe(5);
  for (const other of [PASSWORD, service.initial_password])
    await expect(writeRow(other, made)).rejects.toThrow('password authentication failed');
  expect(await writeRow(PASSWORD)).toBe(5);
  await expectForked(made.service_id, 'take snapshot');
  await purge('orders-fork', made.service_id);
});

test('a service is backed up by itself, and its last snapshot is forked', async () => {
  const { service_id: id } = service;
  const snapshots = async () =>
    Object((await cloud.request('GET', `/services/${id}/backupStatus`)).body).snapshots;
  await untilExpected('a scheduled snapshot is there', async () =>
    expect(await snapshots()).toMatchObject([{ kind: 'scheduled' }]),
  );
  const made = await fork('LAST_SNAPSHOT');
  expect(await writeRow(made.initial_password, made)).toBeGreaterThan(0);
  await expectForked(made.service_id);
  await purge('orders-fork', made.service_id);
  const body = { fork_strategy: 'PITR', target_time: new Date().toISOString() };
  expect(await cloud.request('POST', `/services/${id}/forkService`, body)).toMatchObject({
    status: 400,
    // A slow machine has a base backup by now, and not the moment.
    body: { message: expect.stringContaining('is outside the window that can be reached') },
  });
});

test('without the operator, changes are refused at once and clients go on', async () => {
  const { service_id: id } = service;
  await operator().leave();
  try {
    expect(await cloud.request('POST', `/services/${id}/stop`)).toMatchObject({
      status: 503,
      body: {
        code: 'UNAVAILABLE',
        message: expect.stringContaining('operator of its Kubernetes cluster does not answer'),
      },
    });
    // A purge cannot be undone, so it is accepted less than a stop, and not more.
    for (const query of ['', '?purge=true'])
      expect(await cloud.request('DELETE', `/services/${id}${query}`)).toMatchObject({
        status: 503,
      });
    const { stdout } = await cloud.cli('region', 'doctor', 'kube');
    expect(stdout).toContain('failed calling webhook');
    expect((await cloud.get(id)).status).toBe('READY');
    await untilExpected('the service says that its operator is away', async () => {
      await cloud.round('clusterAnswers', 2);
      await cloud.round('warnings');
      expect((await cloud.get(id)).warnings).toMatchObject([
        { code: 'REGION_AWAY', message: expect.stringMatching(/ since 2/) },
      ]);
    });
    expect(await writeRow(PASSWORD)).toBe(6);
  } finally {
    await operator().comeBack();
  }
});

test('a service is closed to others by an allow list, and by a VPC', async () => {
  const logsIn = async ({ connection_pooler: at }: Partial<Service> = {}): Promise<boolean> => {
    const client = await connectTo(cloud, { ...service, ...at }, PASSWORD);
    await client.end();
    return true;
  };
  await cli('allow-list', 'create', '--description', 'office', '--cidr', '192.0.2.0/24');
  await cli('service', 'attach-allow-list', 'orders', 'office');
  await expect(logsIn()).rejects.toThrow('pg_hba.conf rejects');
  expect(await cli('query', 'orders', 'select 7 as found')).toMatch(/found\s+7/);
  // The service's pooler examines clients itself.
  await cli('service', 'enable-pooler', 'orders');
  await expect(logsIn(await cloud.get(service.service_id))).rejects.toThrow('login rejected');
  await cli('allow-list', 'change', 'office', '--cidr', `${rig().machineHost}/32`);
  await until('the service accepts the login', () => logsIn());
  const pooled = async () => logsIn(await cloud.get(service.service_id));
  await until('the pooler accepts the login', pooled);
  await cli('service', 'disable-pooler', 'orders');
  await cli('vpc', 'create', '--name', 'inner', '--cidr', '10.77.0.0/16', '--region', 'kube');
  await cli('service', 'attach-vpc', 'orders', 'inner');
  await expect(logsIn()).rejects.toThrow('pg_hba.conf rejects');
  await cli('service', 'detach-vpc', 'orders');
  expect(await logsIn()).toBe(true);
  await cli('service', 'detach-allow-list', 'orders');
  await cli('vpc', 'delete', 'inner', '--yes');
  await cli('allow-list', 'delete', 'office', '--yes');
});

test('the integrity check finds what only the cluster has, not the metadata database', async () => {
  const { service_id: id } = service;
  await untilSound(cloud);
  const namespace = `howdah-${cloud.projectId}`;
  const kubectl = (...args: string[]) =>
    rig().inNode('kubectl', args[0] ?? '', '--namespace', namespace, ...args.slice(1));
  await kubectl('create', 'secret', 'generic', 's-gone-password');
  const labels = ['app.kubernetes.io/managed-by=howdah', 'howdah.io/service=gone'];
  await kubectl('label', 'secret', 's-gone-password', ...labels);
  const described = '{"spec":{"description":"of somebody else"}}';
  await kubectl('patch', 'cluster', `s-${id}`, '--type', 'merge', '--patch', described);
  const [first = '', second = '', ...others] = await cloud.audit();
  expect(others).toEqual([]);
  expect(first).toMatch(/^left over: Secret .*\/s-gone-password: kubectl/);
  expect(second).toContain(
    `/s-${id} was changed: kubectl-patch has set spec.description: "of somebody else". Howdah`,
  );
  // The command that the sentence has.
  const [, ...command] = (first.split(': ').at(-1) ?? '').split(' ');
  await kubectl('patch', 'cluster', `s-${id}`, '--type', 'merge', '--patch', UNDESCRIBED);
  await rig().inNode('kubectl', 'delete', ...command.filter((word) => word !== 'delete'));
  expect(await cloud.audit()).toEqual([]);
});

const UNDESCRIBED = '{"spec":{"description":null}}';

test('a service warns of changes by others, and a restart takes them back', async () => {
  const { service_id: id } = service;
  const cluster = ['cluster', `s-${id}`, '--namespace', `howdah-${cloud.projectId}`];
  const kubectl = (...args: string[]) => rig().inNode('kubectl', ...args);
  const patch = '{"spec":{"postgresql":{"parameters":{"wal_keep_size":"1MB"}}}}';
  await kubectl('patch', ...cluster, '--type', 'merge', '--patch', patch);
  const warned = async () => JSON.stringify((await cloud.get(id)).warnings ?? []);
  const field = 'spec.postgresql.parameters.wal_keep_size: \\"1MB\\" of kubectl-patch in place';
  await until('the changed field is shown', async () => (await warned()).includes(field));
  await cloud.request('POST', `/services/${id}/resize`, { storage_gb: 40 });
  const errors = async () => JSON.stringify((await cloud.operations(id))[0]);
  const reason = 'takes the fields of others back';
  await until('the operation fails', async () => (await errors()).includes(reason));
  await cli('service', 'restart', 'orders');
  const [{ steps } = { steps: [] }] = await cloud.operations(id);
  expect(steps[0]).toMatchObject({ name: 'take back fields that others have set' });
  await until('the warning ends', async () => !(await warned()).includes('CLUSTER_CHANGED'));
  expect(await cloud.audit()).toEqual([]);
});

test.skipIf(!hasPlugin)(
  'a service is backed up on demand, and comes back when its Cluster was deleted',
  async () => {
    const { service_id: id } = service;
    await cli('backup', 'run', 'orders');
    const [backup] = await cloud.operations(id);
    expect(backup).toMatchObject({ kind: 'runBackup', status: 'succeeded' });
    expect(backup?.steps.map(({ name }) => name)).toEqual(['take snapshot', 'take base backup']);
    expect(await cloud.cli('service', 'recover', 'orders')).toMatchObject({
      stderr: expect.stringContaining('its Cluster is there'),
    });
    const namespace = `howdah-${cloud.projectId}`;
    await rig().inNode('kubectl', '--namespace', namespace, 'delete', 'cluster', `s-${id}`);
    await untilExpected('it is known to be gone', async () =>
      expect(await cli('service', 'recover', 'orders', '--dry-run')).toContain(
        'its newest backup in the object store of its region comes back',
      ),
    );
    // Nothing but the archive is left.
    expect(await cloud.request('DELETE', `/services/${id}?purge=true`)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('howdah service recover') },
    });
    await cli('service', 'recover', 'orders');
    expect((await cloud.get(id)).service_id).toBe(id);
    expect(await writeRow(PASSWORD)).toBe(7);
  },
);

test('a deleted service is restored, and a region without services is removed', async () => {
  const { service_id: id } = service;
  const { stderr } = await cloud.cli('service', 'delete', 'orders');
  if (hasPlugin) expect(stderr).toContain('warning: Its archive in the object store');
  expect(await cloud.audit()).toEqual([]);
  await cli('service', 'restore', id);
  expect(await writeRow(PASSWORD)).toBe(hasPlugin ? 8 : 7);
  expect(await cloud.cli('region', 'remove', 'kube', '--yes')).toMatchObject({
    stderr: expect.stringContaining('purge the services first'),
  });
  await purge('orders', id);
  const remove = async () => (await cloud.cli('region', 'remove', 'kube', '--yes')).code;
  await untilExpected('the region is removed', async () => expect(await remove()).toBe(0));
  expect(await cli('region', 'list')).not.toContain('kube');
});
