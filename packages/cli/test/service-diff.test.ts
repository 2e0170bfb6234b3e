/** `howdah service diff` of a fork that was migrated, and of its parent. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, type Installation } from '../../server/test/harness.ts';
import { share } from '../../server/test/shared.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await share();
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

async function run(service: { name: string }, password: string, sql: string): Promise<void> {
  const client = await connectTo(cloud, await byName(service.name), password);
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

async function byName(name: string) {
  const { stdout } = await cloud.cli('service', 'get', name, '-o', 'json');
  const found: { service_id: string } = JSON.parse(stdout);
  return cloud.get(found.service_id);
}

test('a fork is compared with its parent: schema, counted rows, and an exit code', async () => {
  const shop = await cloud.create({ name: 'shop', service_type: 'POSTGRES' });
  await run(
    shop,
    shop.initial_password,
    'create table carts (id int primary key, gone int); insert into carts values (1, 1)',
  );
  const forked = await cloud.cli('service', 'fork', 'shop', '--name', 'trial', '-o', 'json');
  const trial: { name: string; initial_password: string } = JSON.parse(forked.stdout);
  const same = await cloud.cli('service', 'diff', 'trial', '--counts', '--exit-code');
  expect(same).toMatchObject({ code: 0, stdout: 'trial has what shop has\n' });

  await run(
    trial,
    trial.initial_password,
    'alter table carts drop column gone, add "the note" text; ' +
      "insert into carts values (2, 'x'); create view cheap as select 1 as one",
  );
  const diff = await cloud.cli('service', 'diff', 'trial', '--counts', '--exit-code');
  expect(diff.code).toBe(1);
  expect(diff.stdout).toContain('- column public.carts.gone');
  expect(diff.stdout).toContain('+ column public.carts."the note"');
  expect(diff.stdout).toContain('+ view public.cheap');
  expect(diff.stdout).toMatch(/public\.carts +1 +2/);
  const back = await cloud.cli('service', 'diff', 'shop', 'trial', '-o', 'json');
  expect(JSON.parse(back.stdout)).toMatchObject({
    schema: { removed: expect.arrayContaining([expect.objectContaining({ kind: 'view' })]) },
    rows_are: 'estimated',
  });
  const none = await cloud.cli('service', 'diff', 'shop');
  expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('is no fork') });
});
