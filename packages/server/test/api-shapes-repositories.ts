/** Tests of api-shapes.test.ts: calls on repositories. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { callApi, cloud, pgBackRest } from './api-shapes-calls.ts';

test('repositories are added, checked, described and removed', async () => {
  const path = join(cloud.home, 'offsite');
  const made = await callApi('POST', '/repositories', { name: 'offsite', type: 'path', path });
  if (pgBackRest === null) {
    expect(made).toMatchObject({ status: 422, body: { code: 'UNAVAILABLE_HERE' } });
    expect(made.body['message']).toContain('apt-get install pgbackrest');
    expect((await callApi('GET', '/repositories')).body).toEqual({ value: [] });
    return;
  }
  const described = { name: 'offsite', type: 'path', location: path, retention_days: 14 };
  expect(made).toMatchObject({ status: 201, body: described });
  const at = `/repositories/${String(made.body['id'])}`;
  expect((await callApi('GET', '/repositories')).body).toMatchObject({ value: [described] });
  for (const [method, call] of [
    ['GET', at],
    ['POST', `${at}/check`],
  ] as const)
    expect(await callApi(method, call)).toMatchObject({
      status: 200,
      body: { ...described, problem: null },
    });
  expect(await callApi('POST', `${at}/recoveryKit`)).toMatchObject({
    status: 200,
    body: {
      howdah: 'recovery kit',
      installation_id: expect.any(String),
      repository: { name: 'offsite', type: 'path', path },
      passphrase: expect.stringMatching(/^.{40,}$/),
    },
  });
  const again = await callApi('POST', '/repositories', { name: 'another', type: 'path', path });
  expect(again).toMatchObject({ status: 409, body: { code: 'CONFLICT' } });
  expect((await callApi('DELETE', at)).status).toBe(204);
  // Its contents are encrypted with the passphrase of before.
  const other = await callApi('POST', '/repositories', { name: 'offsite', type: 'path', path });
  expect(other).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST' } });
  expect(other.body['message']).toContain('its passphrase is not the one');
});
