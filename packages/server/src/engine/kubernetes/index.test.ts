import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { scramVerifier } from '../../lib/scram.ts';
import { EngineUnavailable } from '../engine.ts';
import {
  CLUSTER,
  ID,
  LABELS,
  NAMESPACE,
  newSpec,
  openCloud,
  PASSWORD,
  POD,
  podAt,
  runServers,
  stopServers,
  until,
  untilAwaited,
  untilRemoved,
  untilStep,
  type Cloud,
} from './engine.testing.ts';
import { startFakeKubernetes } from './fake-kubernetes.testing.ts';
import { saltOf } from './network/challenge.ts';

let cloud: Cloud;
beforeEach(async () => {
  cloud = await openCloud();
});
afterEach(() => cloud.close());

/** As Kubernetes words it. */
const NO_WEBHOOK =
  'Internal error occurred: failed calling webhook "vcluster.cnpg.io": failed to call webhook: ' +
  'Post "https://cnpg-webhook-service.cnpg-system.svc:443/validate": connection refused';

test('a service is created, stopped, started and removed, and nothing is left', async () => {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  expect(await untilStep(cloud, spec, 'settled')).toEqual(['start PostgreSQL', 'connect']);
  expect(cloud.fake.objects.get(CLUSTER)).toMatchObject({
    metadata: { annotations: { 'cnpg.io/hibernation': 'off', 'howdah.io/provisioned': 'true' } },
    spec: {
      enableSuperuserAccess: false,
      imageName: 'postgres:17',
      postgresql: {
        pg_hba: ['hostnossl all all all reject'],
        parameters: { 'howdah.networks': 'all', wal_retrieve_retry_interval: '1s' },
      },
      managed: {
        roles: [
          {
            name: 'howdah_reader',
            ensure: 'present',
            login: true,
            bypassrls: true,
            connectionLimit: 12,
            inRoles: ['pg_read_all_data'],
            passwordSecret: { name: `s-${ID}-reader` },
          },
          {
            name: 'howdah_control',
            ensure: 'present',
            login: true,
            connectionLimit: 2,
            inRoles: ['pg_checkpoint', 'pg_read_all_stats', 'pg_signal_backend'],
            passwordSecret: { name: `s-${ID}-control` },
          },
          {
            name: 'howdah_pooler',
            ensure: 'present',
            login: true,
            passwordSecret: { name: `s-${ID}-pooler` },
          },
        ],
      },
      resources: {
        requests: { cpu: '500m', memory: '2Gi' },
        limits: { memory: '2Gi' },
      },
    },
  });
  // Kubernetes would replace these (docs/cloudnativepg.md, fact 30).
  const { bootstrap } = Object(cloud.fake.objects.get(CLUSTER)).spec;
  expect(JSON.stringify(bootstrap)).toContain('create schema');
  expect(JSON.stringify(bootstrap)).not.toMatch(/\$\$|\$\(/);
  const paused = { ...spec, provisioned: true, power: 'paused' } as const;
  await untilAwaited(cloud, paused);
  stopServers(cloud);
  expect(await untilStep(cloud, paused, 'settled')).toEqual(['stop PostgreSQL']);
  await untilAwaited(cloud, { ...paused, power: 'running' });
  runServers(cloud);
  await untilStep(cloud, { ...paused, power: 'running' }, 'settled');
  cloud.fake.take(POD);
  await untilRemoved(cloud);
  expect([...cloud.fake.objects.keys()].filter((path) => path.includes(ID))).toEqual([]);
});

test('a service is removed when the pods of its jobs are', async () => {
  await untilAwaited(cloud, await newSpec(cloud));
  const path = podAt(1).replace(/-1$/, '-1-initdb-x7k2p');
  cloud.fake.put(path, {
    metadata: { labels: { ...LABELS, 'howdah.io/region': 'kube' } },
    spec: { containers: [{ name: 'initdb' }] },
  });
  let detail: string | null = null;
  for (; detail !== 'its pods are ending'; await sleep(5)) {
    const verdict = await cloud.engine.lifecycle.remove(ID, null, async () => undefined);
    if (verdict.outcome === 'settled') throw new Error('it did not wait for the pod');
    ({ detail } = verdict);
  }
  cloud.fake.take(path);
  await untilRemoved(cloud);
});

test('objects of the same name and labels in other namespaces are none of a service', async () => {
  const labels = { ...LABELS, 'howdah.io/region': 'kube', 'howdah.io/project': 'proj123456' };
  const forged = [CLUSTER, POD, PASSWORD].map((path) => path.replace(NAMESPACE, '/namespaces/x'));
  for (const path of forged)
    cloud.fake.put(path, {
      metadata: { labels: { ...labels, 'howdah.io/service': ID } },
      spec: { instances: 1, containers: [{ name: 'postgres' }] },
      status: { conditions: [{ type: 'Ready', status: 'True' }] },
    });
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  expect(await cloud.engine.lifecycle.runs(ID)).toBe(false);
  await untilRemoved(cloud);
  expect([...cloud.fake.objects.keys()].filter((path) => path.includes(ID))).toEqual(forged);
});

test('a service gets a standby, and its primary is changed as asked', async () => {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  cloud.records.add(ID, 0);
  const ha = { replicas: 1, sync: 1, switchover: false, drill: null };
  const wanted = { ...spec, provisioned: true, ha };
  const plan = (kind: 'setHA' | 'switchover') =>
    cloud.engine.lifecycle.plan(kind, wanted, true, wanted.size);
  const steps = ['add standby', 'write configuration', 'connect'];
  expect(plan('setHA')).toEqual(steps);
  await untilAwaited(cloud, wanted);
  // No write waits for a standby that does not exist yet.
  expect(cloud.fake.objects.get(CLUSTER)).toMatchObject({ spec: { instances: 2 } });
  expect(JSON.stringify(cloud.fake.objects.get(CLUSTER))).not.toContain('synchronous');
  runServers(cloud, 2);
  expect(await untilStep(cloud, wanted, 'settled')).toEqual(steps);
  expect(cloud.fake.objects.get(CLUSTER)).toHaveProperty('spec.postgresql.synchronous', {
    method: 'any',
    number: 1,
    dataDurability: 'required',
    failoverQuorum: true,
  });
  expect(plan('switchover')).toEqual(['switch over to member 1', 'connect']);
  cloud.records.ask(ID, { switchover: true });
  const asked = { ...wanted, ha: { ...ha, switchover: true } };
  await untilAwaited(cloud, asked);
  expect(cloud.fake.objects.get(CLUSTER)).toMatchObject({
    status: { targetPrimary: `s-${ID}-2`, phase: 'Switchover in progress' },
  });
  runServers(cloud, 2, 2);
  expect(await untilStep(cloud, asked, 'settled')).toEqual(['switch over to member 1', 'connect']);
  expect([cloud.records.primary(ID), cloud.records.begun]).toEqual([1, []]);
  expect(await cloud.engine.observe.servers(ID)).toMatchObject([
    { node: 0, role: 'standby', state: 'running', synchronous: true },
    { node: 1, role: 'primary', state: 'running', synchronous: false },
  ]);
  cloud.fake.take(POD);
  const missing = async () => (await cloud.engine.observe.warnings(ID)).map(({ code }) => code);
  await until(async () => (await missing()).includes('REPLICA_MISSING'));
});

test('a failover is reported, and a drill kills the primary', async () => {
  const ha = { replicas: 1, sync: 1, switchover: false, drill: null };
  const spec = await newSpec(cloud, { ha });
  cloud.records.add(ID, 0);
  await untilAwaited(cloud, spec);
  runServers(cloud, 2);
  await untilStep(cloud, spec, 'settled');
  cloud.fake.put(CLUSTER, {
    ...cloud.fake.objects.get(CLUSTER),
    status: { currentPrimary: `s-${ID}-2` },
  });
  await until(async () => cloud.records.ended.length === 1);
  expect([cloud.records.primary(ID), cloud.records.begun, cloud.records.ended[0]?.why]).toEqual([
    1,
    [ID],
    null,
  ]);
  runServers(cloud, 2, 2);
  await untilStep(cloud, spec, 'settled');
  cloud.records.ask(ID, { drill: 'failover' });
  const asked = { ...spec, ha: { ...ha, drill: 'failover' } } as const;
  const drilling = untilStep(cloud, asked, 'drill');
  await until(async () => !cloud.fake.objects.has(podAt(2)));
  runServers(cloud, 2, 1);
  expect((await drilling).at(-1)).toBe('drill');
  expect([cloud.records.primary(ID), cloud.records.begun]).toEqual([0, [ID]]);
  // A spec that was read before the drill was taken kills no other primary.
  expect(cloud.records.drillsTaken).toEqual([ID]);
  await until(async () => {
    const { detail } = await cloud.engine.lifecycle.converge(asked, async () => undefined);
    return detail === 'the drill is over';
  });
  expect(cloud.fake.objects.has(podAt(1))).toBe(true);
});

test('another control plane goes on with a step that was begun', async () => {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  await cloud.engine.close();
  runServers(cloud);
  cloud.engine = cloud.openEngine();
  expect(await untilStep(cloud, spec, 'settled')).toEqual(['start PostgreSQL', 'connect']);
});

test('a service whose Cluster is gone is not created again', async () => {
  const spec = await newSpec(cloud, { provisioned: true });
  await expect(untilStep(cloud, spec, 'settled')).rejects.toThrow(
    'its Cluster is gone, with its data',
  );
  expect(cloud.fake.objects.has(CLUSTER)).toBe(false);
});

test('changes are noticed after a watch has ended, and after its place was forgotten', async () => {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  for (const isForgotten of [false, true]) {
    runServers(cloud);
    await until(() => cloud.engine.lifecycle.runs(ID));
    cloud.fake.endWatches(isForgotten);
    cloud.fake.take(POD);
    await until(async () => !(await cloud.engine.lifecycle.runs(ID)));
  }
  expect(cloud.changed).toContain(ID);
});

const CHANGE = { isPaused: false, keepSessions: true, sets: [] };

test('a new password is active when the call returns', async () => {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  await untilStep(cloud, spec, 'settled');
  const verifier = await scramVerifier('another password');
  let isSet = false;
  const setting = cloud.engine.sql.setPassword(ID, verifier, CHANGE).then(() => (isSet = true));
  const encoded = Buffer.from(verifier).toString('base64');
  await until(async () => JSON.stringify(cloud.fake.objects.get(PASSWORD)).includes(encoded));
  await sleep(300);
  expect(isSet).toBe(false);
  cloud.answer = { salt: saltOf(verifier) ?? '' };
  await setting;
  expect(isSet).toBe(true);
});

test('a server is not reachable while it starts, or has the rules of before', async () => {
  const spec = await newSpec(cloud);
  await untilAwaited(cloud, spec);
  runServers(cloud);
  cloud.answer = { sqlstate: '57P03', message: 'the database system is starting up' };
  await untilStep(cloud, spec, 'start PostgreSQL');
  const verdict = await cloud.engine.lifecycle.converge(spec, async () => undefined);
  expect(verdict).toMatchObject({ outcome: 'again', seen: { reachable: false } });
  expect(verdict.detail).toContain('the database system is starting up');
  const accepts = cloud.answer;
  cloud.answer = { sqlstate: '28000', message: 'no entry of pg_hba.conf' };
  const before = await cloud.engine.lifecycle.converge(spec, async () => undefined);
  expect(before).toMatchObject({ outcome: 'again', seen: { reachable: false } });
  expect(before.detail).toContain('has not loaded yet that all networks are allowed');
  cloud.answer = accepts;
});

test('a service of some networks is reachable once sessions of others have ended', async () => {
  const allowedNetworks = ['192.0.2.0/24', '2001:db8::/32'];
  const spec = await newSpec(cloud, { allowedNetworks });
  await untilAwaited(cloud, spec);
  expect(cloud.fake.objects.get(CLUSTER)).toMatchObject({
    spec: {
      postgresql: {
        pg_hba: [
          'hostnossl all all all reject',
          'hostssl all howdah_reader,howdah_control all scram-sha-256',
          'hostssl all all 192.0.2.0/24 scram-sha-256',
          'hostssl all all 2001:db8::/32 scram-sha-256',
          'host all all all reject',
        ],
      },
      managed: {
        services: {
          additional: [{ serviceTemplate: { spec: { externalTrafficPolicy: 'Local' } } }],
        },
      },
    },
  });
  runServers(cloud);
  await untilStep(cloud, spec, 'start PostgreSQL');
  // The control plane has no session of the role.
  cloud.answer = { sqlstate: '28000', message: 'no entry of pg_hba.conf' };
  const verdict = await cloud.engine.lifecycle.converge(spec, async () => undefined);
  expect(verdict).toMatchObject({ outcome: 'again', seen: { reachable: false } });
  expect(verdict.detail).toContain('no session as howdah_control');
});

test('no change begins while the webhook of the operator does not answer', async () => {
  expect(await cloud.engine.lifecycle.whyNoChanges()).toBeNull();
  cloud.fake.refuseClusters(NO_WEBHOOK);
  expect(await cloud.engine.lifecycle.whyNoChanges()).toBe(
    'the operator of its Kubernetes cluster does not answer (webhook vcluster.cnpg.io)',
  );
  cloud.fake.refuseClusters(null);
  cloud.fake.silenceWebhook(true);
  expect(await cloud.engine.lifecycle.whyNoChanges()).toBe(
    'the operator of its Kubernetes cluster does not answer (no webhook within 3 s)',
  );
  cloud.fake.silenceWebhook(false);
  await cloud.fake.close();
  expect(await cloud.engine.lifecycle.whyNoChanges()).toBe(
    'its Kubernetes cluster does not answer',
  );
  cloud.fake = await startFakeKubernetes();
});

test('a paused service keeps its password, and its major version', async () => {
  const paused = await newSpec(cloud, { provisioned: true, power: 'paused' });
  await untilAwaited(cloud, { ...paused, provisioned: false, power: 'running' });
  runServers(cloud);
  await untilStep(cloud, { ...paused, power: 'running' }, 'settled');
  await untilAwaited(cloud, paused);
  stopServers(cloud);
  await untilStep(cloud, paused, 'settled');
  const before = cloud.fake.objects.get(PASSWORD);
  const verifier = await scramVerifier('another password');
  const setting = cloud.engine.sql.setPassword(ID, verifier, CHANGE);
  await expect(setting).rejects.toThrow('it is paused');
  expect(cloud.fake.objects.get(PASSWORD)).toEqual(before);
  // A client that logged in right after the start would do so with the password of before.
  await cloud.engine.sql.setPassword(ID, verifier, { ...CHANGE, isPaused: true });
  const encoded = Buffer.from(verifier).toString('base64');
  expect(JSON.stringify(cloud.fake.objects.get(PASSWORD))).toContain(encoded);
  const newer = untilStep(cloud, { ...paused, power: 'running', major: 18 }, 'settled');
  await expect(newer).rejects.toThrow('its data is of PostgreSQL 17, and 18 was asked for');
});

test('statements are unavailable without a Cluster', async () => {
  const statement = { sql: 'select 1', parameters: [], maxRows: 1, timeoutMs: 1 };
  await expect(cloud.engine.sql.query(ID, null, statement)).rejects.toThrow(EngineUnavailable);
});

test('a control plane that may have been replaced writes nothing to the cluster', async () => {
  const spec = await newSpec(cloud);
  cloud.mayWrite = false;
  const before = cloud.fake.objects.size;
  const converge = async () =>
    (await cloud.engine.lifecycle.converge(spec, async () => undefined)).detail;
  await expect.poll(converge).toContain('another one may work');
  expect(cloud.fake.objects.size).toBe(before);
  cloud.mayWrite = true;
  await untilAwaited(cloud, spec);
  expect(cloud.fake.objects.has(CLUSTER)).toBe(true);
});
