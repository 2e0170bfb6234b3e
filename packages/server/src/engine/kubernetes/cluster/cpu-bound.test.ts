/** The CPU of a size as a limit of pods, where it is asked for. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import {
  CLUSTER,
  newSpec,
  openCloud,
  podAt,
  runServers,
  untilAwaited,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(() => cloud.close());

const cluster = () => Object(cloud.fake.objects.get(CLUSTER));
const limits = () => cluster().spec.resources.limits;
const mark = (): string => cluster().metadata.annotations['kubectl.kubernetes.io/restartedAt'];
const BOUND = { cpu: '500m', memory: '2Gi' };
const NOT_BOUND = { memory: '2Gi' };
const planned = (spec: ServiceSpec) => cloud.engine.lifecycle.plan('resize', spec, true, spec.size);

/** Acts as the operator after a restart: the pod has the mark of the Cluster. */
function replaceServer(): void {
  runServers(cloud);
  const pod = Object(cloud.fake.objects.get(podAt(1)));
  const annotations = { 'kubectl.kubernetes.io/restartedAt': mark() };
  cloud.fake.put(podAt(1), { ...pod, metadata: { ...pod.metadata, annotations } });
}

async function startService(spec: ServiceSpec): Promise<ServiceSpec> {
  await untilAwaited(cloud, spec);
  replaceServer();
  await untilStep(cloud, spec, 'settled');
  return { ...spec, provisioned: true };
}

test('a bound of a service is a limit of its pod, which a change of it replaces', async () => {
  const spec = await startService(await newSpec(cloud));
  expect(limits()).toEqual(NOT_BOUND);
  const bound = { ...spec, cpuBound: true };
  expect(planned(bound)).toEqual(['restart PostgreSQL', 'connect']);
  await untilAwaited(cloud, bound);
  expect(limits()).toEqual(BOUND);
  replaceServer();
  expect(await untilStep(cloud, bound, 'settled')).toContain('restart PostgreSQL');
  expect(planned(bound)).toEqual([]);
  const lifted = { ...spec, cpuBound: false };
  expect(planned(lifted)).toEqual(['restart PostgreSQL', 'connect']);
  await untilAwaited(cloud, lifted);
  expect(limits()).toEqual(NOT_BOUND);
  // The pod has the limit until it is replaced: a LimitRange may set one, so the mark says it.
  replaceServer();
  expect(await untilStep(cloud, lifted, 'settled')).toContain('restart PostgreSQL');
});

test('a bound of the region begins with the next start, and spares who is exempted', async () => {
  const spec = await startService(await newSpec(cloud));
  cloud.boundsCpu = true;
  await untilStep(cloud, spec, 'settled');
  await untilStep(cloud, { ...spec, storageGb: 20 }, 'grow volume');
  expect(limits()).toEqual(NOT_BOUND);
  const again = { ...spec, storageGb: 20, restarts: 1 };
  await untilAwaited(cloud, again);
  expect(limits()).toEqual(BOUND);
  replaceServer();
  await untilStep(cloud, again, 'settled');
  await untilAwaited(cloud, { ...again, cpuBound: false });
  expect(limits()).toEqual(NOT_BOUND);
});

test('a shared service is never bound', async () => {
  cloud.boundsCpu = true;
  await untilAwaited(cloud, { ...(await newSpec(cloud)), size: 'shared', cpuBound: true });
  expect(limits()).toEqual({ memory: '1Gi' });
  expect(mark()).toBe('0');
});
