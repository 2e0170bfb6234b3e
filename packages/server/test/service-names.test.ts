/** Names of new services: jobs that are run again, and clients that race for one name. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Installation } from './harness.ts';
import type { Answer } from './harness-caller.ts';
import { share } from './shared.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await share();
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

const fieldOf = ({ body }: Answer, name: string): unknown => Reflect.get(Object(body), name);

test('simultaneous calls for a unique name make one service', async () => {
  const ask = (path: string, body: object) =>
    cloud.request('POST', path, { unique_name: true, ...body });
  const body = { name: 'only one', service_type: 'POSTGRES' };
  const answers = await Promise.all(Array.from({ length: 12 }, () => ask('/services', body)));
  const made = answers.filter(({ status }) => status === 202);
  expect(made).toHaveLength(1);
  const id = made[0] === undefined ? '' : fieldOf(made[0], 'service_id');
  for (const answer of answers.filter(({ status }) => status !== 202))
    expect(answer).toMatchObject({
      status: 409,
      body: {
        code: 'CONFLICT',
        message: expect.stringContaining('called "only one" already'),
        details: { service_ids: [id] },
      },
    });
  // As a dry run, and for a fork; a call that does not ask for it may share a name.
  expect((await ask('/services?dry_run=true', body)).status).toBe(409);
  await cloud.until(String(id), 'READY');
  const fork = { fork_strategy: 'NOW', name: 'only one' };
  expect((await ask(`/services/${String(id)}/forkService`, fork)).status).toBe(409);
  const shared = await cloud.request('POST', '/services', body);
  expect(shared.status).toBe(202);
  for (const one of [id, fieldOf(shared, 'service_id')])
    await cloud.request('DELETE', `/services/${String(one)}`);
  // A deleted service no longer uses its name.
  await untilExpected('the name is free', async () =>
    expect((await ask('/services?dry_run=true', body)).status).toBe(200),
  );
});

test('forks without a name get different ones', async () => {
  const { service_id: id } = await cloud.create({ name: 'parent', service_type: 'POSTGRES' });
  const forks = await Promise.all(
    [1, 2, 3].map(() =>
      cloud.request('POST', `/services/${id}/forkService`, { fork_strategy: 'NOW' }),
    ),
  );
  expect(new Set(forks.map((fork) => fieldOf(fork, 'name')))).toEqual(
    new Set(['parent-fork', 'parent-fork-2', 'parent-fork-3']),
  );
  for (const fork of forks) await cloud.until(String(fieldOf(fork, 'service_id')), 'READY');
});

test('a job that is run again has one fork, by name or by key', async () => {
  await cloud.create({ name: 'shop', service_type: 'POSTGRES' });
  const run = cloud.cli;
  const fork = ['service', 'fork', 'shop', '--name', 'pr-7'];
  expect(await run(...fork)).toMatchObject({ code: 0 });
  expect(await run(...fork)).toMatchObject({
    code: 5,
    stderr: expect.stringContaining('called "pr-7" already'),
  });
  expect(await run(...fork, '--if-absent')).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/STATUS +READY/),
    stderr: expect.stringContaining('its password was shown when it was made'),
  });
  expect(await run('service', 'fork', 'shop', '--if-absent')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--name'),
  });
  expect(await run('service', 'delete', 'pr-7', '--yes')).toMatchObject({ code: 0 });

  const keyed = ['service', 'fork', 'shop', '--name', 'pr-8', '--idempotency-key', 'run 8'];
  const first = await run(...keyed, '-o', 'json');
  const again = await run(...keyed, '-o', 'json');
  expect(first.code).toBe(0);
  expect(again.stdout).toBe(first.stdout);
  expect(JSON.parse(again.stdout)).toMatchObject({ initial_password: expect.any(String) });
});
