/** The package in its two runners, against a real installation. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, type Installation } from '../../server/test/harness.ts';
import { share } from '../../server/test/shared.ts';
import { until } from '../../server/test/until.ts';
import { databaseFor, withDatabase, type DatabaseOptions } from './probe.ts';

let cloud: Installation;
let options: DatabaseOptions;
beforeAll(async () => {
  cloud = await share();
  const made = await cloud.create({ name: 'tested', service_type: 'POSTGRES' });
  const client = await connectTo(cloud, made, made.initial_password);
  await client.query('create table items as select generate_series(1, 100) as id');
  await client.end();
  const { apiUrl, key, projectId } = cloud;
  options = { apiUrl, key, projectId, from: 'tested' };
});
afterAll(async () => expect(await cloud?.destroy()).toEqual([]));

async function countIn(url: string): Promise<unknown> {
  const client = new Client(url);
  await client.connect();
  await client.query('delete from items where id > 50');
  const { rows } = await client.query<{ count: number }>('select count(*)::int from items');
  await client.end();
  return rows[0]?.count;
}

const untilReturned = (id: string) =>
  until(`the lease ${id} is returned`, async () => {
    return (await cloud.request('GET', `/leases/${id}`)).status === 404;
  });

let usedBefore = '';

test('a test of vitest has a database with the data of the service', async (t) => {
  const { url, leaseId } = await databaseFor(t, options);
  expect(await countIn(url)).toBe(50);
  usedBefore = leaseId;
});

test('it is returned when the test has ended, and the next one has all rows', async (t) => {
  await untilReturned(usedBefore);
  const { url } = await databaseFor(t, { ...options, reset: 'database' });
  expect(await countIn(url)).toBe(50);
});

test('it is returned when the work fails', async () => {
  const failing = withDatabase(async ({ leaseId }) => {
    throw new Error(leaseId);
  }, options);
  const error: unknown = await failing.catch((reason: unknown) => reason);
  await untilReturned(error instanceof Error ? error.message : '');
});

test('a service that is not there, or is not named, is an error that says so', async () => {
  const other = withDatabase(async () => undefined, { ...options, from: 'nothing' });
  await expect(other).rejects.toThrow('there is no service nothing');
  const { from: _from, ...unnamed } = options;
  await expect(withDatabase(async () => undefined, unnamed)).rejects.toThrow('HOWDAH_LEASE_FROM');
});

test('a test of node:test has a database, which is returned', async () => {
  const file = fileURLToPath(new URL('node-test.mjs', import.meta.url));
  const { apiUrl, key, projectId } = cloud;
  const named = { HD_API: apiUrl, HD_KEY: key, HD_PROJECT: projectId, HOWDAH_LEASE_FROM: 'tested' };
  const child = spawn(process.execPath, ['--import', 'tsx', '--test', file], {
    env: { PATH: process.env['PATH'], ...named },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
  await once(child, 'close');
  expect(child.exitCode, said).toBe(0);
  await untilReturned(/lease (\w+) has 100 rows/.exec(said)?.[1] ?? 'none');
});
