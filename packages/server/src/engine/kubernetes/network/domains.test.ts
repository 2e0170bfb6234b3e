/** Services of a region with a domain: their routes, and what a TLS gateway says of them. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ServiceSpec } from '../../spec.ts';
import {
  CLUSTER,
  ID,
  newSpec,
  openCloud,
  runServers,
  until,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';
import { FENCED, FENCED_ALL } from '../cluster/manifest.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
  cloud.domain = 'db.example.com';
});
afterEach(async () => cloud.close());

const ROUTE = `/api/v1/namespaces/howdah-gateway/services/db-${ID}`;
const target = () => Object(cloud.fake.objects.get(ROUTE)).spec?.externalName;

test('a copy of a move has its route before it is promoted', async () => {
  const move = { as: 'copy', source: { host: '127.0.0.1', port: 20_001 } } as const;
  const spec = await newSpec(cloud, { move });
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  expect(target()).toBe(`s-${ID}-endpoint.howdah-proj123456.svc`);
});

test('a service that was started again has its route again', async () => {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.fake.take(ROUTE);
  // As after a restart of the control plane.
  await cloud.engine.close();
  cloud.engine = cloud.openEngine();
  await untilStep(cloud, { ...spec, provisioned: true }, 'settled');
  expect(target()).toBe(`s-${ID}-endpoint.howdah-proj123456.svc`);
});

/** A service that must stop, and whose servers are fenced. */
async function fencedService(): Promise<ServiceSpec> {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  const paused: ServiceSpec = { ...spec, provisioned: true, power: 'paused' };
  await cloud.engine.lifecycle.converge(paused, async () => undefined);
  const found = Object(cloud.fake.objects.get(CLUSTER));
  const { metadata } = found;
  const annotations = { ...metadata.annotations, [FENCED]: FENCED_ALL };
  cloud.fake.put(CLUSTER, { ...found, metadata: { ...metadata, annotations } });
  return paused;
}

/** Waits until a step says this. */
const untilSays = (spec: ServiceSpec, text: string) =>
  until(async () => {
    const verdict = await cloud.engine.lifecycle.converge(spec, async () => undefined);
    return verdict.detail?.includes(text) === true;
  });

test('a fenced server has stopped once that is known', async () => {
  const spec = await fencedService();
  await untilSays(spec, 'PostgreSQL still answers at the endpoint');
  cloud.answer = { sqlstate: '57P03', message: 'the database system is shutting down' };
  await untilSays(spec, 'the TLS gateway does not say whether PostgreSQL has stopped: no login at');
  const nowhere = { ...spec, endpoint: { ...spec.endpoint, port: 1 } };
  await untilSays(nowhere, 'the TLS gateway does not say whether PostgreSQL has stopped: no login');
  cloud.domain = null;
  await untilSays(nowhere, 'PostgreSQL is stopped in its pods');
});
