/** A region whose API server or operator is away. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  ID,
  newSpec,
  openCloud,
  runServers,
  until,
  untilStep,
  type Cloud,
} from '../engine.testing.ts';
import { startFakeKubernetes } from '../fake-kubernetes.testing.ts';
import type { Away } from './answers.ts';
import { AWAY_MS, STEP_MS, waitForCluster } from '../cluster/verdicts.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(() => cloud.close());

const SEEN = { reachable: false, present: true, provisioned: true };
const OPERATOR: Away = { why: 'no webhook', isClusterSeen: true, lastMs: 0 };
const CLUSTER: Away = { why: 'no answer', isClusterSeen: false, lastMs: null };

test.each([
  [null, STEP_MS - 1000, null],
  [null, STEP_MS, 'stop PostgreSQL: CloudNativePG: healthy'],
  [OPERATOR, AWAY_MS - 1000, null],
  [OPERATOR, AWAY_MS, 'stop PostgreSQL: it waits for the operator of its cluster: no webhook'],
  [CLUSTER, AWAY_MS, 'stop PostgreSQL: it waits for its cluster: no answer'],
])('a step waits while %j is away, after %i ms', (away, waitedMs, reason) => {
  const what = 'stop PostgreSQL';
  const waiting = new Map([[ID, { what, sinceMs: Date.now() - waitedMs }]]);
  const answers = { away: () => away, ask: () => undefined };
  const waits = { seen: SEEN, why: 'CloudNativePG: healthy' };
  const verdict = waitForCluster({ waiting, answers }, ID, what, STEP_MS, waits);
  expect(verdict).toMatchObject(
    reason === null ? { outcome: 'again' } : { outcome: 'failed', reason },
  );
});

test('a change that waits for an absent operator says so, and its service warns', async () => {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  const warnings = () => cloud.engine.observe.warnings(ID);
  expect(await warnings()).toEqual([]);
  await cloud.engine.lifecycle.converge({ ...spec, restarts: 1 }, async () => undefined);
  cloud.fake.refuseClusters('Internal error occurred: failed calling webhook "a.cnpg.io": refused');
  let said = '';
  await until(async () => {
    const restarted = { ...spec, restarts: 1, provisioned: true };
    const verdict = await cloud.engine.lifecycle.converge(restarted, async () => undefined);
    said = verdict.detail ?? '';
    return said.startsWith('it waits for the operator');
  });
  expect(said).toContain('the operator of its Kubernetes cluster does not answer (webhook a.cnpg');
  expect(await warnings()).toMatchObject([
    { code: 'REGION_AWAY', message: expect.stringMatching(/ since 2.*nothing is repaired/) },
  ]);
});

test('services of a cluster that is away say when they were last seen', async () => {
  const spec = await newSpec(cloud);
  await untilStep(cloud, spec, 'create Cluster');
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  await cloud.fake.close();
  await until(async () => {
    await cloud.engine.lifecycle.converge({ ...spec, restarts: 1 }, async () => undefined);
    return (await cloud.engine.observe.warnings(ID)).length > 0;
  });
  expect(await cloud.engine.observe.warnings(ID)).toMatchObject([
    { code: 'REGION_AWAY', message: expect.stringMatching(/ since 2.*as it was last seen/) },
  ]);
  cloud.fake = await startFakeKubernetes();
});
