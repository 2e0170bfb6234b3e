/**
 * Operations as their users see them: lists by page and filter, how long they still take, and what
 * can be cancelled.
 */
import type { Schemas } from '@howdah/client';
import { CANCEL, OPERATION_KINDS } from '@howdah/contract';
import { sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { insertFleet } from './fleet.ts';
import { install, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { findProgram } from './probe.ts';
import { untilExpected } from './until.ts';

type Operation = Schemas['Operation'];

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
let service: Service;
beforeAll(async () => {
  cloud = await install();
  metadata = await openMetadata(cloud.home);
  service = await cloud.create({ name: 'operated', service_type: 'POSTGRES' });
});
afterAll(async () => {
  await metadata.close();
  expect(await cloud.destroy()).toEqual([]);
});

const cancel = (id: string) => cloud.request('POST', `/operations/${id}/cancel`);

async function get(id: string): Promise<Operation> {
  const { body } = await cloud.request('GET', `/operations/${id}`);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a schema is checked elsewhere
  return body as Operation;
}

/**
 * Waits until nobody reconciles a service: a round under way could not end while the reconciler is
 * held, nor could calls that wait for it.
 */
async function untilLeft(id: string): Promise<void> {
  const look = () =>
    metadata.db
      .selectFrom('services')
      .select('lease_token')
      .where('id', '=', id)
      .executeTakeFirst();
  await untilExpected('no claim on the service is held', async () =>
    expect((await look())?.lease_token).toBeNull(),
  );
}

/** The ids of a list, page after page. */
async function idsByPages(
  where: string,
  field: 'id' | 'service_id',
): Promise<{ ids: string[]; pages: number }> {
  const { all, pages } = await cloud.pages<Record<typeof field, string>>(
    where,
    (one) => one[field],
  );
  return { ids: all.map((one) => one[field]), pages };
}

test('an operation tells how long it will take, once others of its kind have ended', async () => {
  const path = `/services/${service.service_id}`;
  await untilLeft(service.service_id);
  const first = await metadata.holdingReconciler(async () => {
    const { headers } = await cloud.request('POST', `${path}/stop`);
    return get(headers.get('Operation-Id') ?? '');
  });
  expect(first).not.toHaveProperty('remaining_seconds');
  await cloud.until(service.service_id, 'PAUSED');
  await cloud.request('POST', `${path}/start`);
  await cloud.until(service.service_id, 'READY');
  // Asked for every ten seconds: what is known of the kind is of before the first one ended.
  // Another control plane knows better.
  await cloud.stop('SIGTERM');
  await cloud.up();
  // Longer than all of this test takes.
  await sql`update operations set finished = created + interval '1 hour'
    where kind = 'stop'`.execute(metadata.db);
  await untilLeft(service.service_id);
  const second = await metadata.holdingReconciler(async () => {
    const { headers } = await cloud.request('POST', `${path}/stop`);
    return get(headers.get('Operation-Id') ?? '');
  });
  expect(second.remaining_seconds).toBeGreaterThan(1800);
  expect(second.remaining_seconds).toBeLessThanOrEqual(3600);
  await cloud.until(service.service_id, 'PAUSED');
  expect(await get(second.id)).not.toHaveProperty('remaining_seconds');
  await cloud.request('POST', `${path}/start`);
  await cloud.until(service.service_id, 'READY');
});

test('a verification of a backup is cancelled wherever it is, without a trace', async () => {
  const { headers } = await cloud.request('POST', `/services/${service.service_id}/backups/verify`);
  const id = headers.get('Operation-Id') ?? '';
  expect(await cancel(id)).toMatchObject({
    status: 200,
    body: { id, status: 'failed', error: `cancelled by ${cloud.key.split(':')[0]}` },
  });
  expect(await cancel(id)).toMatchObject({
    status: 400,
    body: { code: 'INVALID_STATE', message: expect.stringContaining('it has ended') },
  });
  // Another one can be asked for at once, and ends well.
  const again = await cloud.request('POST', `/services/${service.service_id}/backups/verify`);
  await untilExpected('the other verification has succeeded', async () =>
    expect((await get(again.headers.get('Operation-Id') ?? '')).status).toBe('succeeded'),
  );
  expect((await get(id)).status).toBe('failed');
});

test('an operation that has begun goes on; the refusal names the call to make', async () => {
  const path = `/services/${service.service_id}`;
  await untilLeft(service.service_id);
  const refusals = await metadata.holdingReconciler(async () => {
    const { headers } = await cloud.request('POST', `${path}/stop`);
    return cancel(headers.get('Operation-Id') ?? '');
  });
  expect(refusals).toMatchObject({
    status: 400,
    body: {
      code: 'INVALID_STATE',
      message: 'cannot cancel stop: it goes on to its end; start the service once it has stopped',
    },
  });
  await cloud.until(service.service_id, 'PAUSED');
  await cloud.request('POST', `${path}/start`);
  await cloud.until(service.service_id, 'READY');
  for (const kind of OPERATION_KINDS) expect(CANCEL[kind], kind).toBeDefined();
  for (const id of ['zzzzzzzzzz', 'x', '%00'])
    for (const answer of [await cancel(id), await cloud.request('GET', `/operations/${id}`)])
      expect(answer.status, id).toBe(404);
});

describe.runIf((await findProgram('haproxy')) !== null)('with a replica', () => {
  test(
    'a drill and a switchover are cancelled before they begin, and the service is as it was',
    { tags: 'slow' },
    async () => {
      const pair = await cloud.create({
        name: 'pair',
        service_type: 'POSTGRES',
        replica_count: 1,
        sync_replica_count: 1,
      });
      for (const [action, body] of [
        ['drill', { kind: 'failover' }],
        ['switchover', undefined],
      ] as const) {
        await untilLeft(pair.service_id);
        const id = await metadata.holdingReconciler(async () => {
          const { headers } = await cloud.request(
            'POST',
            `/services/${pair.service_id}/${action}`,
            body,
          );
          const operation = headers.get('Operation-Id') ?? '';
          expect((await cloud.get(pair.service_id)).status).toBe('CONFIGURING');
          expect(await cancel(operation)).toMatchObject({
            status: 200,
            body: { status: 'failed', kind: action },
          });
          expect((await cloud.get(pair.service_id)).status).toBe('READY');
          return operation;
        });
        expect((await get(id)).steps).toEqual([]);
      }
      const { headers } = await cloud.request('POST', `/services/${pair.service_id}/switchover`);
      const begun = headers.get('Operation-Id') ?? '';
      await untilExpected('the switchover has begun', async () =>
        expect((await get(begun)).status).not.toBe('queued'),
      );
      expect(await cancel(begun)).toMatchObject({
        status: 400,
        body: { message: expect.stringMatching(/it has begun|it has ended/) },
      });
      await untilExpected('the switchover has succeeded', async () =>
        expect((await get(begun)).status).toBe('succeeded'),
      );
      expect((await cloud.cli('service', 'delete', pair.service_id)).code).toBe(0);
    },
  );
});

test('limits, cursors and filters that a list does not know are refused', async () => {
  for (const bad of [
    'limit=0',
    'limit=1001',
    'limit=x',
    'limit=',
    'cursor=x',
    'cursor=1-',
    "cursor=1-a'aaaaaaaa",
    `cursor=${'9'.repeat(18)}-aaaaaaaaaa`,
  ])
    for (const list of ['services', 'operations'])
      expect((await cloud.request('GET', `/${list}?${bad}`)).status, `${list} ${bad}`).toBe(400);
  expect((await cloud.request('GET', '/operations?kind=nothing')).status).toBe(400);
  expect((await cloud.request('GET', '/services?status=ready')).status).toBe(400);
  expect((await cloud.request('GET', '/operations?service_id=%00')).body).toEqual([]);
});

test('lists by pages hold each one once, in order; filters hold what they say', async () => {
  const path = `/services/${service.service_id}`;
  await cloud.request('POST', `${path}/stop`);
  await cloud.until(service.service_id, 'PAUSED');
  const remove = await insertFleet(metadata.db, service.service_id, {
    services: 3000,
    operations: 3000,
    events: 0,
    audit: 0,
    deliveries: 1500,
  });
  try {
    for (const [list, field, known] of [
      ['services', 'service_id', 'services where deleted_at is null'],
      ['operations', 'id', 'operations'],
    ] as const) {
      // The whole comes last: streamed over pages that repeat themselves, it would have no end.
      const byPages = [];
      for (const limit of [1000, 999, 700])
        byPages.push({ limit, ...(await idsByPages(`/${list}?limit=${limit}`, field)) });
      const { rows } = await sql<{
        id: string;
      }>`select id from ${sql.raw(known)} order by id`.execute(metadata.db);
      const { ids: whole } = await idsByPages(`/${list}`, field);
      expect(whole.length, list).toBeGreaterThan(3000);
      expect(whole.toSorted(), list).toEqual(rows.map(({ id }) => id));
      for (const { limit, ids, pages } of byPages) {
        expect(ids, `${list} by ${limit}`).toEqual(whole);
        expect(pages, `${list} by ${limit}`).toBe(Math.ceil(whole.length / limit));
      }
      // A page that ends with the last one names no other.
      const last = await cloud.request('GET', `/${list}?limit=1000&cursor=0-aaaaaaaaaa`);
      expect(last.status).toBe(200);
    }
    const of = async (query: string) => idsByPages(`/operations?${query}`, 'id');
    const { rows } = await sql<{ id: string; kind: string; status: string; service_id: string }>`
      select id, kind, status, service_id from operations order by created desc, id`.execute(
      metadata.db,
    );
    expect((await of('kind=stop')).ids).toEqual(
      rows.filter(({ kind }) => kind === 'stop').map(({ id }) => id),
    );
    expect((await of('status=failed&limit=2')).ids).toEqual(
      rows.filter(({ status }) => status === 'failed').map(({ id }) => id),
    );
    expect((await of(`service_id=${service.service_id}&limit=3`)).ids).toEqual(
      rows.filter(({ service_id: of }) => of === service.service_id).map(({ id }) => id),
    );
    expect((await of('status=running')).ids).toEqual([]);
    expect((await idsByPages('/services?status=READY', 'service_id')).ids).toEqual([]);
    expect((await idsByPages('/services?status=PAUSED&limit=1000', 'service_id')).ids).toHaveLength(
      3001,
    );
    // The command line goes on from page to page until it has what was asked for.
    const listed = async (...line: string[]) => {
      const { stdout } = await cloud.cli(...line, '-o', 'json');
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
      return (JSON.parse(stdout) as { id: string }[]).map(({ id }) => id);
    };
    expect(await listed('operation', 'list', '--limit', '2500')).toEqual(
      (await of('')).ids.slice(0, 2500),
    );
    const deliveries = await idsByPages('/webhooks/webhook000/deliveries', 'id');
    expect(await listed('webhook', 'deliveries', 'webhook000', '--limit', '1200')).toEqual(
      deliveries.ids.slice(0, 1200),
    );
    expect(await listed('webhook', 'deliveries', 'webhook000', '--limit', '5000')).toEqual(
      deliveries.ids,
    );
  } finally {
    await remove();
  }
});

test('the command line lists, shows and cancels them', async () => {
  const listed = await cloud.cli(
    'operation',
    'list',
    '--service',
    service.service_id,
    '--limit',
    '3',
  );
  expect(listed).toMatchObject({ code: 0, stderr: '' });
  expect(listed.stdout).toMatch(
    /^ID +KIND +SERVICE +STATUS +ACCEPTED +TOOK +REQUESTED BY\n[a-z0-9]{10} +stop +/,
  );
  const [newest] = await cloud.operations(service.service_id);
  const shown = await cloud.cli('operation', 'get', newest?.id ?? '');
  expect(shown.stdout).toContain('stop succeeded, requested by');
  expect(shown.stdout).toContain('stop PostgreSQL');
  expect(await cloud.cli('operation', 'cancel', newest?.id ?? '')).toMatchObject({
    code: 5,
    stderr: expect.stringContaining('cannot cancel stop'),
  });
  expect(await cloud.cli('operation', 'get', 'nothing')).toMatchObject({ code: 3 });
  for (const bad of ['0', 'many'])
    expect(await cloud.cli('operation', 'list', '--limit', bad)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(bad),
    });
  const { stdout: events } = await cloud.cli('events');
  expect(events).toMatch(/service\.status +operated READY PAUSING\n/);
  expect(await cloud.cli('events', '--after', 'x')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('Last-Event-ID: found "x"'),
  });
});
