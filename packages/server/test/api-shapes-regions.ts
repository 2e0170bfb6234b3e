/** Tests of api-shapes.test.ts: calls on regions on Kubernetes. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type FakeKubernetes, startFakeKubernetes } from '../test-kubernetes/probe.ts';
import { callApi, cloud } from './api-shapes-calls.ts';
import { issueServerCertificate, openCertificateAuthority } from './probe.ts';
import { untilExpected } from './until.ts';

let kubernetes: FakeKubernetes;
let s3: Awaited<ReturnType<typeof startS3Server>>;
beforeAll(async () => {
  kubernetes = await startFakeKubernetes();
  s3 = await startS3Server();
});
afterAll(async () => {
  await kubernetes.close();
  await s3.close();
});

test('a region on Kubernetes is added, examined, used and removed', async () => {
  const { kubeconfig } = kubernetes;
  const unreachable = kubeconfig.replace(/127\.0\.0\.1:\d+/, '127.0.0.1:1');
  expect(
    await callApi('POST', '/regions', { code: 'kube', kubeconfig: unreachable }),
  ).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('no answer from its API') },
  });
  // Another installation has it.
  const theirs = '/apis/postgresql.cnpg.io/v1/namespaces/howdah-other/clusters/s-another123';
  kubernetes.put(theirs, { metadata: { labels: { 'howdah.io/region': 'kube' } }, spec: {} });
  expect(await callApi('POST', '/regions', { code: 'kube', kubeconfig })).toMatchObject({
    status: 409,
    body: { message: expect.stringContaining('choose another code') },
  });
  kubernetes.take(theirs);
  const described = { code: 'kube', host: '127.0.0.1', first_port: 30_000, last_port: 32_767 };
  const added = await callApi('POST', '/regions', { code: 'kube', kubeconfig });
  expect(added).toMatchObject({ status: 201, body: described });
  expect(JSON.stringify(added.body)).not.toContain('token');
  expect(await callApi('POST', '/regions', { code: 'kube', kubeconfig })).toMatchObject({
    status: 409,
    body: { code: 'CONFLICT' },
  });
  expect((await callApi('GET', '/regions')).body).toMatchObject({ value: [described] });
  await examine();
  await setObjectStore(s3);
  const services = `/projects/${cloud.projectId}/services`;
  const asked = { name: 'there', region_code: 'kube', addons: [] };
  const refused = {
    status: 503,
    body: {
      code: 'UNAVAILABLE',
      message: expect.stringContaining('does not answer (webhook vcluster.cnpg.io)'),
    },
  };
  const noWebhook = 'Internal error occurred: failed calling webhook "vcluster.cnpg.io": refused';
  kubernetes.refuseClusters(noWebhook);
  expect(await callApi('POST', services, asked)).toMatchObject(refused);
  kubernetes.refuseClusters(null);
  const made = await callApi('POST', services, asked);
  expect(made).toMatchObject({ status: 202, body: { region_code: 'kube' } });
  const id = String(made.body['service_id']);
  for (const [call, sent] of [
    ['setHA', { replica_count: 1 }],
    ['forkService', { fork_strategy: 'NOW' }],
    ['extensions', { name: 'hstore' }],
  ] as const)
    expect((await callApi('POST', `${services}/${id}/${call}`, sent)).status, call).toBeLessThan(
      500,
    );
  kubernetes.refuseClusters(noWebhook);
  // A purge cannot be undone: it is not accepted where a delete is refused.
  for (const query of ['', '?purge=true', '?purge=true&dry_run=true'])
    expect(await callApi('DELETE', `${services}/${id}${query}`)).toMatchObject(refused);
  kubernetes.refuseClusters(null);
  expect(await callApi('DELETE', '/regions/kube')).toMatchObject({
    status: 409,
    body: { message: expect.stringContaining('howdah service purge') },
  });
  expect((await callApi('DELETE', `${services}/${id}?purge=true`)).status).toBe(202);
  await untilExpected('the region can be deleted', async () =>
    expect((await callApi('DELETE', '/regions/kube')).status).toBe(204),
  );
  expect([...kubernetes.objects.keys()].filter((path) => path.includes(id))).toEqual([]);
  expect((await callApi('GET', '/regions/kube/doctor')).status).toBe(404);
});

test('a region has a domain of its own, and services that have names in it', async () => {
  const { kubeconfig } = kubernetes;
  const add = (code: string, more: object) =>
    callApi('POST', '/regions', { code, kubeconfig, ...more });
  for (const domain of ['example', 'Db.example.com', '10.0.0.1', '-.example.com', 'a..b'])
    expect((await add('kube', { domain })).status, domain).toBe(400);
  const domain = 'db.example.test';
  for (const more of [{ host: 'h' }, { first_port: 30_000 }, { last_port: 30_000 }])
    expect(await add('kube', { domain, ...more })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('leave out host, first_port and last_port') },
    });
  const route = '/api/v1/namespaces/howdah-gateway/services/db-0123456789';
  kubernetes.put(route, {
    metadata: {
      labels: { 'app.kubernetes.io/managed-by': 'howdah', 'howdah.io/region': 'theirs' },
    },
  });
  expect(await add('kube', { domain })).toMatchObject({
    status: 409,
    body: { message: expect.stringContaining('has routes of the region theirs') },
  });
  kubernetes.take(route);
  expect(await add('kube', { domain })).toMatchObject({
    status: 201,
    body: { domain, host: domain, first_port: 5432, last_port: 5432 },
  });
  for (const other of [domain, `eu.${domain}`, 'example.test'])
    expect(await add('other', { domain: other })).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining(`the region kube has ${domain}`) },
    });
  // Nothing of the region is in the cluster yet.
  expect(await add('other', { domain: 'db.elsewhere.test' })).toMatchObject({
    status: 409,
    body: { message: expect.stringContaining('the region kube has the TLS gateway') },
  });
  const services = `/projects/${cloud.projectId}/services`;
  const asked = { region_code: 'kube', addons: [], enable_pooler: true };
  const made = await Promise.all(
    ['one', 'two'].map((name) => callApi('POST', services, { ...asked, name })),
  );
  for (const { body } of made) {
    const id = String(body['service_id']);
    expect(body).toMatchObject({
      endpoint: { host: `${id}.${domain}`, port: 5432 },
      connection_pooler: { endpoint: { host: `${id}-pooler.${domain}`, port: 5432 } },
    });
    expect((await callApi('DELETE', `${services}/${id}?purge=true`)).status).toBe(202);
  }
  const vpcs = `/projects/${cloud.projectId}/vpcs`;
  expect(await callApi('POST', vpcs, { ...NETWORK, region_code: 'kube' })).toMatchObject({
    status: 422,
    body: { message: expect.stringContaining('the address of the TLS gateway') },
  });
  await untilExpected('the region can be deleted', async () =>
    expect((await callApi('DELETE', '/regions/kube')).status).toBe(204),
  );
});

const NETWORK = { name: 'net', cidr: '10.77.0.0/16' };

test('the images of a region are set, and those that services need stay', async () => {
  const { kubeconfig } = kubernetes;
  expect((await callApi('POST', '/regions', { code: 'kube', kubeconfig })).status).toBe(201);
  const services = `/projects/${cloud.projectId}/services`;
  const images = { 17: 'registry.example.com/pg:17.9' };
  // CloudNativePG would convert the data of 17.
  for (const image of ['pg:18.1', 'pg:latest', 'pg'])
    expect(await callApi('PUT', '/regions/kube/images', { images: { 17: image } })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('must begin with 17, as in pg:17.2') },
    });
  expect(
    await callApi('PUT', '/regions/kube/images', { images, extensions: { 18: ['vector'] } }),
  ).toMatchObject({
    status: 400,
    body: { message: 'extensions: PostgreSQL 18 has no image; name it in images, or leave it out' },
  });
  const asked = { name: 'there', region_code: 'kube', addons: ['ai'] };
  const made = await callApi('POST', services, asked);
  expect(made).toMatchObject({ status: 202, body: { service_type: 'VECTOR' } });
  expect(await callApi('PUT', '/regions/kube/images', { images: { 17: 'pg:17' } })).toMatchObject({
    status: 409,
    body: { message: expect.stringContaining('PostgreSQL 18; name its image') },
  });
  const lacking = { images: { 18: 'pg:18' } };
  expect(await callApi('PUT', '/regions/kube/images', lacking)).toMatchObject({
    status: 409,
    body: { message: expect.stringContaining('PostgreSQL 18 with vector; name an image') },
  });
  const enough = {
    images: { 18: 'pg:18' },
    extensions: { 18: ['vector'] },
    pooler_image: 'pgbouncer:1.25.2',
  };
  expect(await callApi('PUT', '/regions/kube/images', enough)).toMatchObject({
    status: 200,
    body: enough,
  });
  await callApi('DELETE', `${services}/${String(made.body['service_id'])}?purge=true`);
  await untilExpected('the region can be deleted', async () =>
    expect((await callApi('DELETE', '/regions/kube')).status).toBe(204),
  );
});

test('where pods run is set for a region, or for a service of it, and is shown', async () => {
  const { kubeconfig } = kubernetes;
  const auths = JSON.stringify({ auths: { 'registry.example.com': { auth: 'dTpw' } } });
  const placement = { node_selector: { pool: 'db' }, priority_class: 'databases' };
  expect(
    await callApi('POST', '/regions', {
      code: 'kube',
      kubeconfig,
      placement,
      wal_storage_class: 'fast',
      image_pull_secret: auths,
    }),
  ).toMatchObject({
    status: 201,
    body: {
      placement,
      service_placements: {},
      wal_storage_class: 'fast',
      image_pull_registries: ['registry.example.com'],
    },
  });
  const set = (body: object, query = '') => callApi('PUT', `/regions/kube/placement${query}`, body);
  const twice = [{ topology_key: 'zone' }, { topology_key: 'zone' }];
  for (const [body, message] of [
    [{ placement: { topology_spread: twice } }, 'two rules have the key zone'],
    [{ placement: { node_selector: { 'a b': 'x' } } }, 'a b'],
    [{ service_id: 'abcde12345' }, 'expected that of the service'],
    [{ service_id: 'abcde12345', placement: {}, wal_storage_class: null }, 'of the region'],
    [{ image_pull_secret: '{"auths":{"quay.io":{}}}' }, 'no credentials of quay.io'],
    [{ image_pull_secret: 'dTpw' }, 'expected the config.json'],
  ] as const)
    expect(await set(body)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(message) },
    });
  expect(await set({ service_id: 'abcde12345', placement: {} })).toMatchObject({ status: 404 });
  const services = `/projects/${cloud.projectId}/services`;
  const made = await callApi('POST', services, { name: 'a', region_code: 'kube', addons: [] });
  const id = String(made.body['service_id']);
  const own = { topology_spread: [{ topology_key: 'zone', required: true }] };
  await set({ service_id: id, placement: {} }, '?dry_run=true');
  expect(await set({ service_id: id, placement: own })).toMatchObject({
    status: 200,
    body: { placement, service_placements: { [id]: own }, wal_storage_class: 'fast' },
  });
  expect(await set({ image_pull_secret: null, wal_storage_class: null })).toMatchObject({
    status: 200,
    body: { placement, wal_storage_class: null, image_pull_registries: [] },
  });
  expect(await set({ service_id: id, placement: {} })).toMatchObject({
    body: { service_placements: {} },
  });
  expect(JSON.stringify((await callApi('GET', '/regions')).body)).not.toContain('dTpw');
  await callApi('DELETE', `${services}/${id}?purge=true`);
  await untilExpected('the region can be deleted', async () =>
    expect((await callApi('DELETE', '/regions/kube')).status).toBe(204),
  );
});

/** An S3 server whose buckets are empty. */
async function startS3Server() {
  const directory = await mkdtemp(join(tmpdir(), 'hd-'));
  const authority = await openCertificateAuthority(directory);
  const { certificatePem, keyPem } = await issueServerCertificate(authority, ['localhost']);
  const server = createServer({ cert: certificatePem, key: keyPem }, (_, answer) => {
    answer.end('<ListBucketResult/>');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    place: { endpoint: `https://localhost:${address.port}`, ca_pem: authority.certificatePem },
    close: async (): Promise<void> => {
      server.close();
      server.closeAllConnections();
      await rm(directory, { recursive: true });
    },
  };
}

/** Sets the object store of the region, and has another place refused. */
async function setObjectStore({ place }: Awaited<ReturnType<typeof startS3Server>>): Promise<void> {
  const asked = { bucket: 'backups', region: 'eu', key_id: 'id', key: 'a-secret-key' };
  const put = (change: object) =>
    callApi('PUT', '/regions/kube/objectStore', { ...asked, ...place, ...change });
  const nowhere = 'https://127.0.0.1:1';
  expect(await put({ endpoint: nowhere })).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining(`${nowhere} does not answer`) },
  });
  const set = await put({});
  expect(set).toMatchObject({
    status: 200,
    body: { object_store: { endpoint: place.endpoint, bucket: 'backups' } },
  });
  expect(JSON.stringify(set)).not.toContain(asked.key);
  const folderOf = ({ body: { object_store: store } }: typeof set) => Object(store).folder;
  const same = await put({ endpoint: place.endpoint.replace('localhost', 'LOCALHOST') });
  expect(folderOf(same)).toBe(folderOf(set));
  const bucket = 'another';
  expect(await put({ bucket })).toMatchObject({
    status: 409,
    body: { message: expect.stringContaining('"move": true') },
  });
  const moved = await put({ bucket, move: true });
  expect(moved).toMatchObject({ status: 200, body: { object_store: { bucket } } });
  expect(folderOf(moved)).not.toBe(folderOf(set));
}

async function examine(): Promise<void> {
  const { body } = await callApi('GET', '/regions/kube/doctor');
  expect(body['value']).toContainEqual({
    what: 'CloudNativePG operator',
    state: 'ok',
    found: 'cnpg-system/operator, 1.30.0',
  });
  expect(body['value']).toContainEqual(
    expect.objectContaining({ what: 'storage class', state: 'missing' }),
  );
  expect(body['value']).toContainEqual(
    expect.objectContaining({
      what: 'metrics API',
      state: 'note',
      remedy: expect.stringContaining('metrics-server'),
    }),
  );
}
