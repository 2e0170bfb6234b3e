/**
 * Forks of services with extensions: what stands in the extensions' catalogs works in the fork, as
 * its own. Where the types can be had.
 */
import type { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  accessOf,
  moment,
  verificationOf,
  withClient,
  type ServiceAccess,
} from './service-access.ts';
import type { Installation } from './harness.ts';
import { share } from './shared.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
let available: string[];
beforeAll(async () => {
  cloud = await share();
  const { data } = await cloud.client.GET('/projects/{project_id}/regions', {
    params: { path: { project_id: cloud.projectId } },
  });
  available = (data?.[0]?.service_types ?? [])
    .filter((type) => type.available)
    .map(({ service_type }) => service_type);
});
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

const fork = async (parent: ServiceAccess, body: object): Promise<ServiceAccess> => {
  const { body: answer } = await cloud.request(
    'POST',
    `/services/${parent.service_id}/forkService`,
    body,
  );
  const child = accessOf(answer);
  await cloud.until(child.service_id, 'READY');
  return child;
};

const value = async (client: Client, text: string): Promise<unknown> =>
  Object.values(Object((await client.query(text)).rows[0]))[0];

/**
 * Whether this TimescaleDB has more than its Apache part, without which there are no continuous
 * aggregates and no policies.
 */
const hasPolicies = async (client: Client): Promise<boolean> =>
  (await value(client, 'show timescaledb.license')) === 'timescale';

test('TIMESCALEDB: hypertables, aggregates and jobs go on in a fork', async (context) => {
  if (!available.includes('TIMESCALEDB')) return context.skip();
  const parent = await cloud.create({ name: 'series', service_type: 'TIMESCALEDB' });
  const policies = await withClient(cloud, parent, async (client) => {
    await client.query(`
      create table metrics (at timestamptz not null, device int, v float);
      select create_hypertable('metrics', 'at', chunk_time_interval => interval '1 day');
      create index on metrics (device, at);
      insert into metrics select timestamptz '2026-01-01 12:00Z' + n * interval '1 day', n % 3, n
        from generate_series(0, 9) n`);
    const can = await hasPolicies(client);
    if (can) {
      await client.query(
        `create materialized view daily with (timescaledb.continuous) as
         select time_bucket('1 day', at) as day, sum(v) as total from metrics group by 1`,
      );
      await client.query(`
        select add_continuous_aggregate_policy('daily', null, interval '1 hour', interval '1 hour');
        select add_retention_policy('metrics', interval '100 years')`);
    }
    return can;
  });
  const jobs =
    'select job_id, proc_name, owner::text from timescaledb_information.jobs order by job_id';
  const before = await withClient(cloud, parent, async (client) => (await client.query(jobs)).rows);
  const target_time = await moment(cloud, parent);
  await withClient(cloud, parent, (client) =>
    client.query("insert into metrics values ('2026-02-01 00:00Z', 1, 100)"),
  );

  for (const [body, rows, chunks] of [
    [{ fork_strategy: 'NOW' }, 11, 11],
    [{ fork_strategy: 'PITR', target_time }, 10, 10],
  ] as const) {
    const child = await fork(parent, body);
    await withClient(cloud, child, async (client) => {
      expect(await value(client, 'select count(*)::int from metrics')).toBe(rows);
      expect(await value(client, "select count(*)::int from show_chunks('metrics')")).toBe(chunks);
      expect((await client.query(jobs)).rows).toEqual(before);
      // Into a chunk that came with the fork, and into one of its own.
      await client.query(
        "insert into metrics values ('2026-01-03 13:00Z', 7, 1), ('2026-03-01 00:00Z', 7, 1)",
      );
      expect(await value(client, "select count(*)::int from show_chunks('metrics')")).toBe(
        chunks + 1,
      );
      expect(await value(client, 'select count(*)::int from metrics where device = 7')).toBe(2);
      expect(
        await value(
          client,
          "select count(*)::int from drop_chunks('metrics', older_than => timestamptz " +
            "'2026-01-03 00:00Z')",
        ),
      ).toBe(2);
      // TimescaleDB's own workers, in its own server.
      await untilExpected('the workers of TimescaleDB run', async () =>
        expect(await value(client, WORKERS)).toBeGreaterThan(0),
      );
      if (policies) {
        await client.query("call refresh_continuous_aggregate('daily', null, null)");
        expect(await value(client, 'select count(*)::int from daily')).toBe(chunks - 1);
      }
    });
  }
  await withClient(cloud, parent, async (client) => {
    expect(await value(client, 'select count(*)::int from metrics')).toBe(11);
    expect(await value(client, "select count(*)::int from show_chunks('metrics')")).toBe(11);
    expect((await client.query(jobs)).rows).toEqual(before);
    expect(await value(client, WORKERS)).toBeGreaterThan(0);
  });
  expect(await verificationOf(cloud, parent)).toEqual(VERIFIED);
});
const VERIFIED = { status: 'succeeded', error: undefined };
const WORKERS =
  'select count(*)::int from pg_stat_activity ' +
  "where backend_type like 'TimescaleDB Background Worker%'";

test('VECTOR: an index of vectors finds the same in a fork, and grows', async (context) => {
  if (!available.includes('VECTOR')) return context.skip();
  const parent = await cloud.create({ name: 'vectors', service_type: 'VECTOR' });
  await withClient(cloud, parent, (client) =>
    client.query(`
      create table items (id int, e vector(3)); create index on items using hnsw (e vector_l2_ops);
      insert into items select n, array[n, n, n]::vector from generate_series(1, 500) n`),
  );
  const child = await fork(parent, { fork_strategy: 'NOW' });
  await withClient(cloud, child, async (client) => {
    const nearest = "select id from items order by e <-> '[77.2,77,77]' limit 1";
    await client.query('set enable_seqscan = off');
    expect(JSON.stringify((await client.query(`explain ${nearest}`)).rows)).toContain('Index Scan');
    expect(await value(client, nearest)).toBe(77);
    await client.query("insert into items values (1000, '[77.2,77,77]')");
    expect(await value(client, nearest)).toBe(1000);
  });
  expect(
    await withClient(cloud, parent, (client) => value(client, 'select count(*)::int from items')),
  ).toBe(500);
  expect(await verificationOf(cloud, parent)).toEqual(VERIFIED);
});
