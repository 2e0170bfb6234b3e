import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectTo, type Installation } from './harness.ts';
import { share } from './shared.ts';
import { untilExpected } from './until.ts';

let cloud: Installation;
beforeAll(async () => {
  cloud = await share();
});
afterAll(async () => {
  expect(await cloud.destroy()).toEqual([]);
});

test('a service is created, used, paused, resumed, resized and deleted', async () => {
  const service = await cloud.create({ name: 'life', service_type: 'POSTGRES' });
  const client = await connectTo(cloud, service, service.initial_password);
  await client.query('create table kept (n int); insert into kept values (42)');
  await client.end();

  const stopped = await cloud.request('POST', `/services/${service.service_id}/stop`);
  expect(stopped).toMatchObject({
    status: 202,
    body: { status: 'PAUSING', endpoint: service.endpoint },
  });
  await cloud.until(service.service_id, 'PAUSED');
  await expect(connectTo(cloud, service, service.initial_password)).rejects.toThrow(/ECONNREFUSED/);

  const started = await cloud.request('POST', `/services/${service.service_id}/start`);
  expect(started).toMatchObject({ status: 202, body: { status: 'RESUMING' } });
  await cloud.until(service.service_id, 'READY');

  const resized = await cloud.request('POST', `/services/${service.service_id}/resize`, {
    cpu_millis: '1000',
    memory_gbs: '4',
  });
  expect(resized).toMatchObject({ status: 202, body: { status: 'UPGRADING' } });
  await cloud.until(service.service_id, 'READY');
  const again = await connectTo(cloud, service, service.initial_password);
  expect(
    (await again.query('select n, current_setting($1) as buffers from kept', ['shared_buffers']))
      .rows,
  ).toEqual([{ n: 42, buffers: '1GB' }]);
  await again.end();

  expect(await cloud.request('DELETE', `/services/${service.service_id}`)).toMatchObject({
    status: 202,
  });
  await untilExpected('the service is deleted', async () =>
    expect((await cloud.request('GET', `/services/${service.service_id}`)).status).toBe(404),
  );
  const kinds = (await cloud.operations(service.service_id)).map(
    ({ kind, status }) => `${kind} ${status}`,
  );
  expect(kinds).toEqual([
    'delete succeeded',
    'resize succeeded',
    'start succeeded',
    'stop succeeded',
    'create succeeded',
  ]);
});
