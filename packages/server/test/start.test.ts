/** Starts that cannot be: they end with a message, and leave nothing running. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, test } from 'vitest';
import { install } from './harness.ts';

test('a start whose port is taken ends with a message, and the next one finds all as it was', async () => {
  const cloud = await install();
  const service = await cloud.create({ name: 'stays', service_type: 'POSTGRES' });
  await cloud.stop('SIGTERM');
  const other = createServer().listen(cloud.port, '127.0.0.1');
  await once(other, 'listening');
  const { code, stderr } = await cloud.cli('up');
  expect(stderr).toContain(`port ${cloud.port} of 127.0.0.1 is taken by another program`);
  expect(code).toBe(1);
  other.close();
  await once(other, 'close');
  await cloud.up();
  await cloud.until(service.service_id, 'READY');
  expect(await cloud.destroy()).toEqual([]);
});
