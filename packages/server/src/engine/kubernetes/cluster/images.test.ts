/** The images of servers, and the extensions of new databases. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import {
  CLUSTER,
  clusterOf,
  newSpec,
  openCloud,
  runServers,
  untilAwaited,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(async () => cloud.close());

const fields = () => Object(cloud.fake.objects.get(CLUSTER)).spec;

test('another image begins with the next restart, and with no other change', async () => {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.images = { 17: 'postgres:17.9' };
  const larger = { ...spec, provisioned: true, storageGb: 20 };
  await untilStep(cloud, larger, 'grow volume');
  expect(fields()).toMatchObject({ storage: { size: '20G' }, imageName: 'postgres:17' });
  await untilStep(cloud, larger, 'settled');
  await untilAwaited(cloud, { ...larger, restarts: 1 });
  expect(fields().imageName).toBe('postgres:17.9');
});

test('another image and other parameters are not written at once', async () => {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.images = { 17: 'postgres:17.9' };
  const { shared_buffers: memory } = fields().postgresql.parameters;
  const larger = { ...spec, provisioned: true, size: { cpuMillis: 1000, memoryGbs: 4 } } as const;
  await untilAwaited(cloud, larger);
  expect(fields().imageName).toBe('postgres:17.9');
  expect(fields().postgresql.parameters.shared_buffers).not.toBe(memory);
  // Nor when it was resized while it was stopped.
  const converge = (wanted: ServiceSpec) =>
    cloud.engine.lifecycle.converge(wanted, async () => undefined);
  const stopped = async () => {
    await converge({ ...larger, power: 'paused' });
    return Object(cloud.fake.objects.get(CLUSTER)).metadata.annotations['cnpg.io/hibernation'];
  };
  await expect.poll(stopped).toBe('on');
  cloud.images = { 17: 'postgres:17.10' };
  const started = async () =>
    (await converge({ ...spec, provisioned: true })) && fields().imageName;
  await expect.poll(started).toBe('postgres:17.10');
  expect(fields().postgresql.parameters.shared_buffers).toBe(memory);
});

test('a fork has the image of its parent, whose libraries its data may need', async () => {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.images = { 17: 'postgres:17.9' };
  const origin = { parent: spec.id, strategy: 'NOW', targetTime: null } as const;
  const fork = { ...spec, id: 'fghij67890', origin };
  await untilStep(cloud, fork, 'create Cluster');
  expect(Object(cloud.fake.objects.get(clusterOf(fork.id))).spec.imageName).toBe('postgres:17');
});

test('the extensions of a type are created before anybody can log in, and are loaded', async () => {
  const spec = await newSpec(cloud, { addons: ['time-series', 'ai'] });
  await untilStep(cloud, spec, 'create Cluster');
  const { bootstrap, postgresql } = fields();
  const [first, owner, second] = bootstrap.initdb.postInitApplicationSQL;
  expect(first).toBe('create extension timescaledb schema public');
  expect(owner).toContain("update pg_extension set extowner = 'tsdbadmin'::regrole");
  // Kubernetes would make it $ (docs/cloudnativepg.md, fact 30).
  expect(owner).not.toContain('$$');
  expect(second).toBe('create extension vector schema public');
  expect(postgresql.shared_preload_libraries).toEqual(['timescaledb']);
  expect(postgresql.parameters).toMatchObject({ 'timescaledb.telemetry_level': 'off' });
});
