/**
 * A fleet in the metadata database: everything that is asked of them finds its rows by an index.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { insertFleet } from './fleet.ts';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { untilExpected } from './until.ts';

const COUNTS = {
  services: 10_000,
  operations: 100_000,
  events: 100_000,
  audit: 100_000,
  deliveries: 20_000,
};
/** Tables that grow with the fleet. */
const LARGE = ['services', 'operations', 'events', 'deliveries', 'audit_log'];

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
let model: Service;
let removeFleet: () => Promise<void>;
beforeAll(async () => {
  cloud = await install({ HOWDAH_MAINTENANCE_WINDOW: 'daily 00:00-24:00' });
  model = await cloud.create({ name: 'model', service_type: 'POSTGRES' });
  await cloud.request('POST', `/services/${model.service_id}/stop`);
  await cloud.until(model.service_id, 'PAUSED');
  metadata = await openMetadata(cloud.home);
  removeFleet = await insertFleet(metadata.db, model.service_id, COUNTS);
  await explainFromNowOn();
});
afterAll(async () => {
  await removeFleet?.();
  await metadata.close();
  expect(await cloud.destroy()).toEqual([]);
});

/**
 * The statements whose plans read a large table from its beginning to its end, with those plans.
 */
async function sequentialScans(): Promise<{ statements: number; scans: string[] }> {
  const directory = join(cloud.home, 'data', 'store', 'logs');
  const files = (await readdir(directory)).filter((name) => name.endsWith('.json'));
  const lines = (
    await Promise.all(files.map(async (name) => readFile(join(directory, name), 'utf8')))
  )
    .join('')
    .split('\n');
  const plans = lines
    .filter((line) => line.includes('Query Text'))
    .map((line): { message: string; application_name?: string } => JSON.parse(line))
    .filter(({ application_name: by }) => by?.startsWith('howdah control plane') === true)
    .map(({ message }) => message);
  return {
    statements: plans.length,
    scans: plans.filter((plan) =>
      LARGE.some((table) => new RegExp(`Seq Scan on (public\\.)?${table}\\b`).test(plan)),
    ),
  };
}

test('ten thousand services, a hundred thousand operations: no statement reads all', async () => {
  await cloud.stop('SIGTERM');
  await cloud.up();
  const busy = await cloud.create({ name: 'busy', service_type: 'POSTGRES' });
  const path = `/services/${busy.service_id}`;
  const asked: [string, string, unknown?][] = [
    ['GET', path],
    ['GET', '/services'],
    // Often enough for PostgreSQL to plan the prepared statement once and for all.
    ...Array.from({ length: 8 }, (): [string, string] => ['GET', '/services?limit=100']),
    ['GET', '/services?status=READY&limit=10'],
    ['GET', '/operations?limit=100'],
    ['GET', `/operations?limit=100&service_id=${busy.service_id}`],
    ['GET', '/operations?limit=100&status=failed'],
    ['GET', '/operations?limit=100&kind=drill'],
    ['GET', '/audit?limit=100'],
    ['GET', `/audit?limit=100&service_id=${busy.service_id}`],
    ['GET', '/audit?limit=10&outcome=refused'],
    ['GET', '/audit/export?since=2100-01-01T00:00:00Z'],
    ['GET', '/events?follow=false'],
    ['GET', '/events?follow=false&last_event_id=99990'],
    ['POST', '/webhooks', { url: 'http://receiver.invalid/' }],
    ['GET', '/webhooks'],
    ['GET', '/webhooks/webhook000/deliveries?limit=10'],
    ['GET', '/webhooks/webhook000/deliveries?limit=10&status=failed'],
    ['GET', '/alerts/incidents?limit=10&status=open'],
    ['GET', '/audit?limit=10&public_key=HDunknown'],
    ['GET', '/audit?limit=10&call=deleteService'],
    ['GET', '/audit?limit=10&operation_id=f000000001'],
    ['POST', `${path}/rename`, { name: 'busier' }],
    ['POST', `${path}/backups/verify`],
    ['POST', `${path}/stop`],
  ];
  for (const [method, where, body] of asked)
    expect((await cloud.request(method, where, body)).status, `${method} ${where}`).toBeLessThan(
      300,
    );
  await cloud.round('alerts');
  await cloud.until(busy.service_id, 'PAUSED');
  const next = await cloud.request('GET', '/services?limit=100');
  expect(next.headers.get('Link')).toMatch(/rel="next"/);
  for (const list of ['services', 'operations', 'audit'])
    expect(await wholeByPages(list), list).toBeGreaterThan(COUNTS.services);
  expect((await cloud.request('DELETE', path)).status).toBe(202);
  await fetch(`http://127.0.0.1:${cloud.port}/metrics`);
  await untilExpected('the service is deleted', async () =>
    expect((await cloud.request('GET', path)).status).toBe(404),
  );
  const { statements, scans } = await sequentialScans();
  expect(scans.join('\n\n')).toBe('');
  expect(statements).toBeGreaterThan(100);
});

/** How many there are, by pages of a thousand: at most twelve. */
async function wholeByPages(list: string): Promise<number> {
  let count = 0;
  let where: string | undefined = `/${list}?limit=1000`;
  for (let page = 0; page < 12 && where !== undefined; page++) {
    const { body, headers } = await cloud.request('GET', where);
    count += Array.isArray(body) ? body.length : 0;
    where = /projects\/[a-z0-9]+(\/[^>]+)>/.exec(headers.get('Link') ?? '')?.[1];
  }
  return count;
}

/** Has PostgreSQL write down the plan of every statement of the sessions that begin from now on. */
async function explainFromNowOn(): Promise<void> {
  for (const [name, value] of [
    ['session_preload_libraries', 'auto_explain'],
    ['auto_explain.log_min_duration', '0'],
    ['auto_explain.log_nested_statements', 'on'],
  ])
    await sql`alter database postgres set ${sql.raw(`${name} = '${value}'`)}`.execute(metadata.db);
}
