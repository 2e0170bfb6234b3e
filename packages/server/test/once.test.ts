/**
 * Idempotency-Key: a call is made once, however often it is repeated, and whatever dies meanwhile.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, install, type Installation } from './harness.ts';
import type { Answer } from './harness-caller.ts';
import { openMetadata } from './metadata.ts';
import { pruneAnswers } from './probe.ts';
import { atMoment, untilExpected } from './until.ts';

let cloud: Installation;
let metadata: Awaited<ReturnType<typeof openMetadata>>;
beforeAll(async () => {
  cloud = await install();
  metadata = await openMetadata(cloud.home);
});
afterAll(async () => {
  await metadata?.close();
  expect(await cloud?.destroy()).toEqual([]);
});

const BODY = { name: 'once', service_type: 'POSTGRES' } as const;
const once = (name: string, path = '/services', body: object | undefined = BODY): Promise<Answer> =>
  cloud.request('POST', path, body, { 'Idempotency-Key': name });
const idOf = ({ body }: Answer): string => String(Reflect.get(Object(body), 'service_id'));
const services = async (): Promise<unknown[]> => {
  const { body } = await cloud.request('GET', '/services');
  return Array.isArray(body) ? body : [];
};
const removeAll = async (): Promise<void> => {
  for (const service of await services())
    await cloud.request(
      'DELETE',
      `/services/${String(Reflect.get(Object(service), 'service_id'))}`,
    );
  await untilExpected('no service is left', async () => expect(await services()).toEqual([]));
};

test('100 parallel calls make one service with one answer and a working password', async () => {
  const name = randomUUID();
  const answers = await Promise.all(Array.from({ length: 100 }, () => once(name)));
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]));
  expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
  expect(new Set(answers.map(({ headers }) => headers.get('operation-id'))).size).toBe(1);
  expect(await services()).toHaveLength(1);
  const [first] = answers;
  const id = first === undefined ? '' : idOf(first);
  const ready = await cloud.until(id, 'READY');
  const client = await connectTo(
    cloud,
    ready,
    String(Reflect.get(Object(first?.body), 'initial_password')),
  );
  await client.end();
  // The same long after, when the service has gone on.
  expect((await once(name)).body).toEqual(first?.body);
  await removeAll();
  expect((await once(name)).body).toEqual(first?.body);
  expect(await services()).toEqual([]);
});

test('another call under the same name is refused; another key has names of its own', async () => {
  const name = 'short name';
  const made = await once(name);
  for (const [path, body] of [
    ['/services', { ...BODY, name: 'another' }],
    [`/services/${idOf(made)}/stop`, undefined],
  ] as const)
    expect(await once(name, path, body)).toMatchObject({
      status: 409,
      body: { code: 'CONFLICT', message: expect.stringContaining('Idempotency-Key') },
    });
  const other = await cloud.request('POST', '/keys', { name: 'other', role: 'developer' });
  const key = ['public_key', 'secret_key']
    .map((half) => String(Reflect.get(Object(other.body), half)))
    .join(':');
  const another = await cloud.request('POST', '/services', BODY, {
    'Idempotency-Key': name,
    Authorization: `Bearer ${key}`,
  });
  expect(another.status).toBe(202);
  expect(idOf(another)).not.toBe(idOf(made));
  for (const wrong of ['', 'ä', 'x'.repeat(256)])
    expect(await once(wrong)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('Idempotency-Key') },
    });
  await removeAll();
});

test('a fork, a key and a new password are made once too', async () => {
  const parent = await cloud.create({ name: 'parent', service_type: 'POSTGRES' });
  const forks = await Promise.all(
    [1, 2, 3].map(() =>
      once('fork', `/services/${parent.service_id}/forkService`, { fork_strategy: 'NOW' }),
    ),
  );
  expect(new Set(forks.map(idOf)).size).toBe(1);
  await cloud.until(idOf(forks[0] ?? { status: 0, body: '', headers: new Headers() }), 'READY');
  const keys = await Promise.all(
    [1, 2, 3].map(() => once('key', '/keys', { name: 'agent', role: 'viewer' })),
  );
  expect(new Set(keys.map(({ body }) => JSON.stringify(body))).size).toBe(1);
  for (const _ of [1, 2])
    expect(
      (
        await once('password', `/services/${parent.service_id}/updatePassword`, {
          password: 'long-enough-1',
        })
      ).status,
    ).toBe(204);
  expect(
    (await cloud.operations(parent.service_id)).filter(({ kind }) => kind === 'updatePassword'),
  ).toHaveLength(1);
  // A call to a service is answered again after the service is gone.
  await removeAll();
  expect(
    (await once('fork', `/services/${parent.service_id}/forkService`, { fork_strategy: 'NOW' }))
      .body,
  ).toEqual(forks[0]?.body);
});

test('a refusal is not kept: the call is decided again', async () => {
  const made = await cloud.create(BODY);
  const path = `/services/${made.service_id}/start`;
  expect((await once('later', path, undefined)).status).toBe(400);
  await cloud.request('POST', `/services/${made.service_id}/stop`);
  await cloud.until(made.service_id, 'PAUSED');
  expect((await once('later', path, undefined)).status).toBe(202);
  await cloud.until(made.service_id, 'READY');
  await removeAll();
});

test('a dry run takes no name', async () => {
  expect(
    (await cloud.request('POST', '/services?dry_run=true', BODY, { 'Idempotency-Key': 'asked' }))
      .body,
  ).toMatchObject({
    dry_run: true,
  });
  expect((await once('asked')).status).toBe(202);
  await removeAll();
});

test(
  'killed in the middle, again and again: one service, and the answer that it has from then on',
  { tags: 'slow' },
  async () => {
    for (let round = 0; round < 4; round++) {
      const name = randomUUID();
      const calls = Array.from({ length: 20 }, () => once(name).catch(() => null));
      // Wherever the kill falls: before the change, between it and the answer, or after some
      // answers.
      if (round > 0) await Promise.race([...calls, atMoment(round * 3)]);
      await cloud.stop('SIGKILL');
      const before = (await Promise.all(calls)).filter(
        (answer): answer is Answer => answer?.status === 202,
      );
      await cloud.up();
      const after = await once(name);
      expect(after.status).toBe(202);
      for (const answer of before) expect(answer.body).toEqual(after.body);
      expect(await services()).toHaveLength(1);
      await cloud.until(idOf(after), 'READY');
      await removeAll();
    }
  },
);

test('killed before the answer is kept: the same call makes the change once', async () => {
  const name = randomUUID();
  await metadata.holdingAnswers(async () => {
    const call = once(name).catch(() => null);
    await untilExpected('the call waits to keep its answer', async () =>
      expect(await metadata.isAwaited()).toBe(true),
    );
    expect(await services()).toEqual([]);
    await cloud.stop('SIGKILL');
    expect(await call).toBeNull();
  });
  await cloud.up();
  expect((await once(name)).status).toBe(202);
  expect(await services()).toHaveLength(1);
  await removeAll();
});

test('an answer is kept for a day, and nobody can read it from the metadata', async () => {
  const name = 'readable?';
  const made = await once(name);
  const rows = await metadata.db.selectFrom('kept_answers').selectAll().execute();
  const text = JSON.stringify(
    rows.map(({ sealed, lookup, request }) =>
      [sealed, lookup, request].map((bytes) => bytes.toString('latin1')),
    ),
  );
  expect(rows.length).toBeGreaterThan(0);
  for (const secret of [
    name,
    idOf(made),
    String(Reflect.get(Object(made.body), 'initial_password')),
  ])
    expect(text).not.toContain(secret);
  await metadata.db
    .updateTable('kept_answers')
    .set({ created: new Date(Date.now() - 25 * 3_600_000) })
    .execute();
  const again = await once(name);
  expect(idOf(again)).not.toBe(idOf(made));
  // The control plane does so by a timer.
  while (await pruneAnswers(metadata.db));
  expect(
    await metadata.db
      .selectFrom('kept_answers')
      .selectAll()
      .where('created', '<', new Date(Date.now() - 24 * 3_600_000))
      .execute(),
  ).toEqual([]);
});
