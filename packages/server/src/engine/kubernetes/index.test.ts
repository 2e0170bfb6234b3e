import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { scramVerifier } from '../../lib/scram.ts';
import {
  issueServerCertificate,
  openCertificateAuthority,
  type CertificateAuthority,
} from '../../lib/tls.ts';
import { createMemoryRecords, type MemoryRecords } from '../conformance/memory-records.ts';
import { EngineUnavailable, type Engine, type Verdict } from '../engine.ts';
import type { ServiceSpec } from '../spec.ts';
import { readKubeconfig } from './api/kubeconfig.ts';
import { startFakeKubernetes, type FakeKubernetes } from './fake-kubernetes.testing.ts';
import { startFakePostgres, type LoginAnswer } from './fake-postgres.testing.ts';
import { createKubernetesEngine } from './index.ts';
import { saltOf } from './service/challenge.ts';
import { HEALTHY } from './service/decide.ts';

const ID = 'abcde12345';
const NAMESPACE = '/namespaces/howdah-proj123456';
const CLUSTER = `/apis/postgresql.cnpg.io/v1${NAMESPACE}/clusters/s-${ID}`;
const podAt = (ordinal: number): string => `/api/v1${NAMESPACE}/pods/s-${ID}-${ordinal}`;
const POD = podAt(1);
const PASSWORD = `/api/v1${NAMESPACE}/secrets/s-${ID}-password`;
const LABELS = { 'app.kubernetes.io/managed-by': 'howdah', 'cnpg.io/cluster': `s-${ID}` };

let directory: string;
let authority: CertificateAuthority;
let fake: FakeKubernetes;
let postgres: Awaited<ReturnType<typeof startFakePostgres>>;
let answer: LoginAnswer;
let engine: Engine;
let mayWrite = true;
let records: MemoryRecords;
const changed: string[] = [];
/** As Kubernetes words it. */
const NO_WEBHOOK =
  'Internal error occurred: failed calling webhook "vcluster.cnpg.io": failed to call webhook: ' +
  'Post "https://cnpg-webhook-service.cnpg-system.svc:443/validate": connection refused';

const openEngine = (): Engine =>
  createKubernetesEngine({
    settings: {
      code: 'kube',
      host: '127.0.0.1',
      storageClass: null,
      images: { 17: 'postgres:17' },
    },
    connection: readKubeconfig(fake.kubeconfig, null),
    mayWrite: () => mayWrite,
    authority,
    records: records.store,
    readLagLimit: { bytes: 1, seconds: 1 },
    changed: (id) => changed.push(id),
    failed: () => undefined,
  });

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'hd-'));
  authority = await openCertificateAuthority(directory);
  fake = await startFakeKubernetes();
  answer = { salt: 'c2FsdA==' };
  records = createMemoryRecords({ take: async () => 1 });
  postgres = await startFakePostgres(
    await issueServerCertificate(authority, ['127.0.0.1']),
    () => answer,
  );
  engine = openEngine();
});
afterEach(async () => {
  await engine.close();
  await postgres.close();
  await fake.close();
  await rm(directory, { recursive: true });
});

async function newSpec(change: Partial<ServiceSpec> = {}): Promise<ServiceSpec> {
  return {
    id: ID,
    projectId: 'proj123456',
    addons: [],
    major: 17,
    preload: [],
    extension: null,
    size: { cpuMillis: 500, memoryGbs: 2 },
    storageGb: 10,
    restarts: 0,
    provisioned: false,
    power: 'running',
    endpoint: { host: '127.0.0.1', port: postgres.port },
    firstVerifier: await scramVerifier('password'),
    origin: null,
    recovery: null,
    upgrade: null,
    pooler: null,
    ha: null,
    vpc: null,
    allowedNetworks: null,
    set: null,
    ...change,
  };
}

/** Makes steps until one has this name or outcome. @returns the steps that were made */
async function untilStep(spec: ServiceSpec, wanted: string): Promise<string[]> {
  const steps: string[] = [];
  for (let round = 0; round < 600; round += 1) {
    const verdict = await engine.lifecycle.converge(spec, async () => undefined);
    if (verdict.did !== null) steps.push(verdict.did);
    if (verdict.did === wanted || verdict.outcome === wanted) return steps;
    if (verdict.outcome === 'failed') throw new Error(verdict.reason);
    await sleep(20);
  }
  throw new Error(`no ${wanted}: ${steps.join(', ')}`);
}

/** Waits until a converge waits for the operator. */
async function untilAwaited(spec: ServiceSpec): Promise<void> {
  for (let round = 0; round < 600; round += 1) {
    const verdict: Verdict = await engine.lifecycle.converge(spec, async () => undefined);
    if (verdict.detail?.startsWith('CloudNativePG: ') === true) return;
    await sleep(20);
  }
  throw new Error('it waits for nothing');
}

async function untilRemoved(): Promise<void> {
  for (let outcome = ''; outcome !== 'settled'; await sleep(20)) {
    const verdict = await engine.lifecycle.remove(ID, null, async () => undefined);
    ({ outcome } = verdict);
    if (verdict.outcome === 'failed') throw new Error(verdict.reason);
  }
}

/** Acts as the operator for a Cluster that must run. @param primary the name of its pod ends so */
function runServers(count = 1, primary = 1): void {
  const labels = { ...LABELS, 'howdah.io/region': 'kube' };
  const annotations = { 'kubectl.kubernetes.io/restartedAt': '0' };
  for (let ordinal = 1; ordinal <= count; ordinal += 1)
    fake.put(podAt(ordinal), {
      metadata: { labels, annotations },
      spec: { containers: [{ name: 'postgres', resources: { limits: { memory: '2Gi' } } }] },
      status: { conditions: [{ type: 'Ready', status: 'True' }] },
    });
  const currentPrimary = `s-${ID}-${primary}`;
  fake.put(CLUSTER, {
    ...fake.objects.get(CLUSTER),
    status: {
      phase: HEALTHY,
      readyInstances: count,
      currentPrimary,
      targetPrimary: currentPrimary,
    },
  });
}

/** Acts as the operator for a hibernated Cluster. */
function stopServers(): void {
  fake.take(POD);
  const conditions = [{ type: 'cnpg.io/hibernation', status: 'True' }];
  fake.put(CLUSTER, { ...fake.objects.get(CLUSTER), status: { phase: HEALTHY, conditions } });
}

test('a service is created, stopped, started and removed, and nothing is left', async () => {
  const spec = await newSpec();
  await untilAwaited(spec);
  runServers();
  expect(await untilStep(spec, 'settled')).toEqual(['start PostgreSQL', 'connect']);
  expect(fake.objects.get(CLUSTER)).toMatchObject({
    metadata: { annotations: { 'cnpg.io/hibernation': 'off', 'howdah.io/provisioned': 'true' } },
    spec: {
      enableSuperuserAccess: false,
      imageName: 'postgres:17',
      postgresql: { pg_hba: ['hostnossl all all all reject'] },
      resources: {
        requests: { cpu: '500m', memory: '2Gi' },
        limits: { cpu: '500m', memory: '2Gi' },
      },
    },
  });
  const paused = { ...spec, provisioned: true, power: 'paused' } as const;
  await untilAwaited(paused);
  stopServers();
  expect(await untilStep(paused, 'settled')).toEqual(['stop PostgreSQL']);
  await untilAwaited({ ...paused, power: 'running' });
  runServers();
  await untilStep({ ...paused, power: 'running' }, 'settled');
  fake.take(POD);
  await untilRemoved();
  expect([...fake.objects.keys()].filter((path) => path.includes(ID))).toEqual([]);
});

test('objects of the same name and labels in other namespaces are none of a service', async () => {
  const labels = { ...LABELS, 'howdah.io/region': 'kube', 'howdah.io/project': 'proj123456' };
  const forged = [CLUSTER, POD, PASSWORD].map((path) => path.replace(NAMESPACE, '/namespaces/x'));
  for (const path of forged)
    fake.put(path, {
      metadata: { labels: { ...labels, 'howdah.io/service': ID } },
      spec: { instances: 1, containers: [{ name: 'postgres' }] },
      status: { conditions: [{ type: 'Ready', status: 'True' }] },
    });
  const spec = await newSpec();
  await untilAwaited(spec);
  expect(await engine.lifecycle.runs(ID)).toBe(false);
  await untilRemoved();
  expect([...fake.objects.keys()].filter((path) => path.includes(ID))).toEqual(forged);
});

test('a service gets a standby, and its primary is changed as asked', async () => {
  const spec = await newSpec();
  await untilAwaited(spec);
  runServers();
  await untilStep(spec, 'settled');
  records.add(ID, 0);
  const ha = { replicas: 1, sync: 1, switchover: false, drill: null };
  const wanted = { ...spec, provisioned: true, ha };
  const plan = (kind: 'setHA' | 'switchover') =>
    engine.lifecycle.plan(kind, wanted, true, wanted.size);
  const steps = ['add standby', 'write configuration', 'connect'];
  expect(plan('setHA')).toEqual(steps);
  await untilAwaited(wanted);
  // No write waits for a standby that does not exist yet.
  expect(fake.objects.get(CLUSTER)).toMatchObject({ spec: { instances: 2 } });
  expect(JSON.stringify(fake.objects.get(CLUSTER))).not.toContain('synchronous');
  runServers(2);
  expect(await untilStep(wanted, 'settled')).toEqual(steps);
  expect(fake.objects.get(CLUSTER)).toHaveProperty('spec.postgresql.synchronous', {
    method: 'any',
    number: 1,
    dataDurability: 'required',
    failoverQuorum: true,
  });
  expect(plan('switchover')).toEqual(['switch over to member 1', 'connect']);
  records.ask(ID, { switchover: true });
  const asked = { ...wanted, ha: { ...ha, switchover: true } };
  await untilAwaited(asked);
  expect(fake.objects.get(CLUSTER)).toMatchObject({
    status: { targetPrimary: `s-${ID}-2`, phase: 'Switchover in progress' },
  });
  runServers(2, 2);
  expect(await untilStep(asked, 'settled')).toEqual(['switch over to member 1', 'connect']);
  expect([records.primary(ID), records.begun]).toEqual([1, []]);
  expect(await engine.observe.servers(ID)).toMatchObject([
    { node: 0, role: 'standby', state: 'running', synchronous: true },
    { node: 1, role: 'primary', state: 'running', synchronous: false },
  ]);
  fake.take(POD);
  const missing = async () => (await engine.observe.warnings(ID)).map(({ code }) => code);
  await until(async () => (await missing()).includes('REPLICA_MISSING'));
});

test('a failover is reported, and a drill kills the primary', async () => {
  const ha = { replicas: 1, sync: 1, switchover: false, drill: null };
  const spec = await newSpec({ ha });
  records.add(ID, 0);
  await untilAwaited(spec);
  runServers(2);
  await untilStep(spec, 'settled');
  fake.put(CLUSTER, { ...fake.objects.get(CLUSTER), status: { currentPrimary: `s-${ID}-2` } });
  await until(async () => records.ended.length === 1);
  expect([records.primary(ID), records.begun, records.ended[0]?.why]).toEqual([1, [ID], null]);
  runServers(2, 2);
  await untilStep(spec, 'settled');
  records.ask(ID, { drill: 'failover' });
  const asked: ServiceSpec = { ...spec, ha: { ...ha, drill: 'failover' } };
  const drilling = untilStep(asked, 'drill');
  await until(async () => !fake.objects.has(podAt(2)));
  runServers(2, 1);
  expect((await drilling).at(-1)).toBe('drill');
  expect([records.primary(ID), records.begun]).toEqual([0, [ID]]);
  // A spec that was read before the drill was taken kills no other primary.
  expect(records.drillsTaken).toEqual([ID]);
  await until(async () => {
    const { detail } = await engine.lifecycle.converge(asked, async () => undefined);
    return detail === 'the drill is over';
  });
  expect(fake.objects.has(podAt(1))).toBe(true);
});

test('another control plane goes on with a step that was begun', async () => {
  const spec = await newSpec();
  await untilAwaited(spec);
  await engine.close();
  runServers();
  engine = openEngine();
  expect(await untilStep(spec, 'settled')).toEqual(['start PostgreSQL', 'connect']);
});

test('a service whose Cluster is gone is not created again', async () => {
  const spec = await newSpec({ provisioned: true });
  await expect(untilStep(spec, 'settled')).rejects.toThrow('its Cluster is gone, with its data');
  expect(fake.objects.has(CLUSTER)).toBe(false);
});

test('changes are noticed after a watch has ended, and after its place was forgotten', async () => {
  const spec = await newSpec();
  await untilAwaited(spec);
  for (const isForgotten of [false, true]) {
    runServers();
    await until(() => engine.lifecycle.runs(ID));
    fake.endWatches(isForgotten);
    fake.take(POD);
    await until(async () => !(await engine.lifecycle.runs(ID)));
  }
  expect(changed).toContain(ID);
});

test('a new password is active when the call returns', async () => {
  const spec = await newSpec();
  await untilAwaited(spec);
  runServers();
  await untilStep(spec, 'settled');
  const verifier = await scramVerifier('another password');
  let isSet = false;
  const setting = engine.sql.setPassword(ID, verifier).then(() => (isSet = true));
  const encoded = Buffer.from(verifier).toString('base64');
  await until(async () => JSON.stringify(fake.objects.get(PASSWORD)).includes(encoded));
  await sleep(300);
  expect(isSet).toBe(false);
  answer = { salt: saltOf(verifier) ?? '' };
  await setting;
  expect(isSet).toBe(true);
});

test('a server is not reachable while it starts, and is if it refuses our network', async () => {
  const spec = await newSpec();
  await untilAwaited(spec);
  runServers();
  answer = { sqlstate: '57P03', message: 'the database system is starting up' };
  await untilStep(spec, 'start PostgreSQL');
  const verdict = await engine.lifecycle.converge(spec, async () => undefined);
  expect(verdict).toMatchObject({ outcome: 'again', seen: { reachable: false } });
  expect(verdict.detail).toContain('the database system is starting up');
  answer = { sqlstate: '28000', message: 'no entry of pg_hba.conf' };
  await untilStep(spec, 'settled');
});

test('no change begins while the webhook of the operator does not answer', async () => {
  expect(await engine.lifecycle.whyNoChanges()).toBeNull();
  fake.refuseClusters(NO_WEBHOOK);
  expect(await engine.lifecycle.whyNoChanges()).toBe(
    'the operator of its Kubernetes cluster does not answer (webhook vcluster.cnpg.io)',
  );
  fake.refuseClusters(null);
  await fake.close();
  expect(await engine.lifecycle.whyNoChanges()).toBe('its Kubernetes cluster does not answer');
  fake = await startFakeKubernetes();
});

test('a paused service keeps its password, and its major version', async () => {
  const paused = await newSpec({ provisioned: true, power: 'paused' });
  await untilAwaited({ ...paused, provisioned: false, power: 'running' });
  runServers();
  await untilStep({ ...paused, power: 'running' }, 'settled');
  await untilAwaited(paused);
  stopServers();
  await untilStep(paused, 'settled');
  const before = fake.objects.get(PASSWORD);
  const setting = engine.sql.setPassword(ID, await scramVerifier('another password'));
  await expect(setting).rejects.toThrow('it is paused');
  expect(fake.objects.get(PASSWORD)).toEqual(before);
  const newer = untilStep({ ...paused, power: 'running', major: 18 }, 'settled');
  await expect(newer).rejects.toThrow('its data is of PostgreSQL 17, and 18 was asked for');
});

test('statements are refused as unavailable', async () => {
  const statement = { sql: 'select 1', parameters: [], maxRows: 1, timeoutMs: 1 };
  await expect(engine.sql.query(ID, null, statement)).rejects.toThrow(EngineUnavailable);
});

async function until(holds: () => Promise<boolean>): Promise<void> {
  for (let round = 0; round < 600; round += 1) {
    if (await holds()) return;
    await sleep(20);
  }
  throw new Error('not in time');
}

test('a control plane that may have been replaced writes nothing to the cluster', async () => {
  const spec = await newSpec();
  mayWrite = false;
  try {
    const before = fake.objects.size;
    const converge = async () =>
      (await engine.lifecycle.converge(spec, async () => undefined)).detail;
    await expect.poll(converge).toContain('another one may work');
    expect(fake.objects.size).toBe(before);
  } finally {
    mayWrite = true;
  }
  await untilAwaited(spec);
  expect(fake.objects.has(CLUSTER)).toBe(true);
});
