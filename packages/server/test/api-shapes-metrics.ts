/** Tests of api-shapes.test.ts: the series of the resources that services use. */
import { expect, test } from 'vitest';
import { type Body, call, create, isBody, metadata, reach, remove } from './api-shapes-calls.ts';
import { insertSamples } from './probe.ts';

test('series have a point for each bucket', async () => {
  const { id } = await create({ name: 'in figures', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const names = (await call('GET', `/services/${id}/metrics/available-series`)).body['value'];
  expect(names).toEqual([
    'cpu_millis',
    'cpu_guaranteed_millis',
    'cpu_beyond_millis',
    'cpu_wait_millis',
    'write_wait_millis',
    'memory_bytes',
    'storage_bytes',
    'connections',
    'transactions_per_second',
    'lag_bytes',
    'lag_seconds',
    'timescale_cloud_system_cpu_usage_millicores',
    'timescale_cloud_system_cpu_total_millicores',
    'timescale_cloud_system_memory_usage_bytes',
    'timescale_cloud_system_memory_total_bytes',
    'timescale_cloud_system_disk_usage_bytes',
    'timescale_cloud_database_num_connections',
  ]);
  const span = { from: '2026-01-01T00:00:00Z', to: '2026-01-01T01:00:30Z' };
  for (const [query, points] of [
    [{ name: 'connections', ...span, bucket_seconds: 60 }, 61],
    // As long as the range asks for: a minute up to an hour, an hour up to 30 days, then a day.
    [{ name: 'connections', ...span }, 2],
    [{ name: 'connections', from: span.from, to: '2026-01-01T01:00:00Z' }, 60],
    [{ name: 'connections', from: span.from, to: '2026-03-01T00:00:00Z' }, 59],
    [{ name: 'connections', ...span, bucket_seconds: 600, fn: 'max' }, 7],
    [
      {
        name: 'memory_bytes',
        from: span.from,
        to: '2026-01-01T00:10:00+00:00',
        filters: [{ key: 'node', value: '0' }],
      },
      10,
    ],
    [{ name: 'connections', ...span, bucket_seconds: 2_592_000 }, 1],
  ] as const) {
    const answer = await call('POST', `/services/${id}/metrics/series`, query);
    expect(answer.status).toBe(200);
    const [series]: unknown[] = Array.isArray(answer.body['value']) ? answer.body['value'] : [];
    expect(series).toMatchObject({
      labels: { node: '0', role: 'primary' },
      data: expect.any(Array),
    });
    const data: unknown[] = isBody(series) && Array.isArray(series['data']) ? series['data'] : [];
    expect(data).toHaveLength(points);
    expect(data[0]).toEqual({ time: '2026-01-01T00:00:00.000Z', value: null });
  }
  expect(
    (
      await call('POST', `/services/${id}/metrics/series`, {
        name: 'connections',
        ...span,
        filters: [{ key: 'node', value: '1' }],
      })
    ).body,
  ).toEqual({
    value: [],
  });
  await remove(id);
});

test('series refuse wrong spans, buckets, functions and names', async () => {
  const { id } = await create({ name: 'asked wrongly', service_type: 'POSTGRES' });
  const span = { from: '2026-01-01T00:00:00Z', to: '2026-01-01T01:00:30Z' };
  for (const [bad, part] of [
    [{}, 'name'],
    [{ name: 'nonsense', ...span }, 'cpu_millis, cpu_guaranteed_millis'],
    [{ name: 'connections', from: span.to, to: span.from }, 'from'],
    [{ name: 'connections', from: span.from, to: span.from }, 'from'],
    [{ name: 'connections', from: '2026-01-01T23:59:60Z', to: '2026-01-02T00:00:00Z' }, 'from'],
    [{ name: 'connections', ...span, bucket_seconds: 59 }, 'bucket_seconds'],
    [{ name: 'connections', ...span, bucket_seconds: 1e300 }, 'bucket_seconds'],
    [
      {
        name: 'connections',
        from: '2020-01-01T00:00:00Z',
        to: '2026-01-01T00:00:00Z',
        bucket_seconds: 60,
      },
      'bucket_seconds',
    ],
    [{ name: 'connections', ...span, fn: 'median' }, 'avg, min, max'],
    [{ name: 'connections', ...span, fn: 'P95' }, 'rate'],
    [{ name: 'timescale_cloud_database_qps', ...span }, 'timescale_cloud_database_num_connections'],
    [{ name: 'connections', from: 'x', to: 'y' }, 'date-time'],
  ] as const)
    expect(
      await call('POST', `/services/${id}/metrics/series`, bad),
      JSON.stringify(bad),
    ).toMatchObject({
      status: 400,
      body: { code: 'INVALID_REQUEST', message: expect.stringContaining(part) },
    });
  await remove(id);
});

/** A service with samples of two servers, a minute apart. */
async function sampled() {
  const { id } = await create({ name: 'sampled', service_type: 'POSTGRES' });
  await reach(id, 'READY', 'QUEUED', 'CONFIGURING');
  const from = new Date('2026-01-01T00:00:00Z');
  // The second value of the first server is a decrease.
  for (const [node, connections] of [
    [0, [10, 4, 16, 19]],
    [1, [1, 1, 1, 1]],
  ] as const)
    await insertSamples(
      metadata.db,
      connections.map((count, minute) => ({
        serviceId: id,
        node,
        at: new Date(from.getTime() + minute * 60_000),
        cpuMillis: 750,
        memoryBytes: 1e9,
        storageBytes: 2e9,
        connections: count,
        transactionsPerSecond: 0,
        lag: null,
        cpuWaitMillis: 1500,
        writeWaitMillis: null,
      })),
    );
  const read = async (body: Body): Promise<unknown> =>
    (
      await call('POST', `/services/${id}/metrics/series`, {
        from: from.toISOString(),
        to: '2026-01-01T00:04:00Z',
        bucket_seconds: 120,
        ...body,
      })
    ).body['value'];
  return { id, read };
}

const series = (role: string, node: number, ...values: (number | null)[]) => ({
  labels: { node: String(node), role },
  data: values.map((value) => ({ time: expect.any(String), value })),
});
const primaryOnly = { filters: [{ key: 'role', value: 'primary' }] };

test('series are combined as asked', async () => {
  const { id, read } = await sampled();
  for (const [fn, ...values] of [
    [undefined, 4, 19],
    ['LAST', 4, 19],
    ['last', 4, 19],
    ['AVG', 7, 17.5],
    ['MIN', 4, 16],
    ['MAX', 10, 19],
    ['SUM', 14, 35],
    // Counted from zero after the decrease: 4 in the first bucket, 12 and 3 in the second.
    ['RATE', 4 / 120, 15 / 120],
    ['INCREASE', 4, 15],
    ['COUNT', 2, 2],
    ['P50', 7, 17.5],
    ['P90', 9.4, 18.7],
    ['P99', 9.94, 18.97],
  ] as const)
    expect(
      await read({ name: 'connections', ...(fn === undefined ? {} : { fn }), ...primaryOnly }),
      fn,
    ).toEqual([series('primary', 0, ...values)]);
  // The sum over all servers is 11 and 5 in the first bucket, 17 and 20 in the second.
  for (const [fn, ...values] of [
    ['MIN_TOTAL', 5, 17],
    ['MAX_TOTAL', 11, 20],
  ] as const)
    expect(await read({ name: 'connections', fn }), fn).toMatchObject([
      { data: values.map((value) => ({ value })) },
    ]);
  await remove(id);
});

test('series have the names of Tiger Cloud too, and each is described', async () => {
  const { id, read } = await sampled();
  for (const [name, value] of [
    ['cpu_guaranteed_millis', 500],
    ['cpu_beyond_millis', 250],
    ['cpu_wait_millis', 1500],
    ['write_wait_millis', null],
    ['timescale_cloud_system_cpu_usage_millicores', 750],
    ['timescale_cloud_system_cpu_total_millicores', 500],
    ['timescale_cloud_system_memory_usage_bytes', 1e9],
    ['timescale_cloud_system_memory_total_bytes', 2 * 1024 ** 3],
    ['timescale_cloud_system_disk_usage_bytes', 2e9],
  ] as const)
    expect(await read({ name }), name).toEqual([
      series('primary', 0, value, value),
      series('replica', 1, value, value),
    ]);
  expect(
    await read({
      name: 'timescale_cloud_database_num_connections',
      filters: [{ key: 'role', value: 'replica' }],
    }),
  ).toEqual([series('replica', 1, 1, 1)]);
  for (const key of ['ordinal', 'constructor'])
    expect(await read({ name: 'connections', filters: [{ key, value: '0' }] })).toEqual([]);
  const details = await call('GET', `/services/${id}/metrics/details`);
  expect(details.body['value']).toContainEqual(
    expect.objectContaining({ name: 'connections', unit: 'connections' }),
  );
  await remove(id);
});
