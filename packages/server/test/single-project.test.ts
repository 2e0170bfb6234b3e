/**
 * An installation for one project: a second one has no services where they would run as the same
 * operating system user.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { install, type Installation } from './harness.ts';
import { anotherProject } from './vpc.ts';

let cloud: Installation;

beforeAll(async () => {
  cloud = await install({ HOWDAH_SINGLE_PROJECT: 'yes' });
});
afterAll(async () => {
  expect(await cloud?.destroy()).toEqual([]);
});

test('HOWDAH_SINGLE_PROJECT refuses a second project where services share a user', async () => {
  const first = await cloud.create({ name: 'first', service_type: 'POSTGRES' });
  const { project } = await anotherProject(cloud);
  const { body: regions } = await cloud.request('GET', '/regions');
  const create = { name: 'second', service_type: 'POSTGRES' };
  const { isolated } = Object(Object(regions)[0]).isolation;
  const ofSecond = await project.call('POST', '/services', create);
  if (isolated === true) {
    expect(ofSecond.status, JSON.stringify(ofSecond.body)).toBe(202);
  } else {
    expect(ofSecond).toMatchObject({ status: 422, body: { code: 'UNAVAILABLE_HERE' } });
    expect(JSON.stringify(ofSecond.body)).toContain('HOWDAH_SINGLE_PROJECT=yes');
  }
  // The first project is not held up by what the second one asked for.
  expect((await cloud.request('POST', '/services', { ...create, name: 'third' })).status).toBe(202);
  expect(
    (
      await cloud.request('POST', `/services/${first.service_id}/forkService`, {
        fork_strategy: 'NOW',
      })
    ).status,
  ).toBe(202);
});
