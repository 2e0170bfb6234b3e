import { expect, test } from 'vitest';
import { poolerManifests, poolerVersion, type PoolerInput } from './manifest.ts';

const INPUT: PoolerInput = {
  cluster: 's-abcde12345',
  server: 's-abcde12345-rw',
  roleSecret: 's-abcde12345-pooler',
  id: 'abcde12345',
  projectId: 'proj123456',
  region: { code: 'kube', poolerImage: 'example.com/pgbouncer:1.25.1' },
  placement: {},
  pulls: false,
  nodePort: 30_002,
  running: true,
  networks: null,
  major: 17,
  maxConnections: 100,
  owner: 'uid-of-the-cluster',
};

test('the version is that of the tag of the image', () => {
  const digest = `@sha256:${'0'.repeat(64)}`;
  expect(
    ['a/b:1.25.1', 'a:5000/b:1.24.1-3-trixie', `b:1.26${digest}`, 'a:5000/b'].map(poolerVersion),
  ).toEqual(['1.25.1', '1.24.1', '1.26', '0.0']);
});

test('its pods are none of the Cluster, go with it, and have no rights', () => {
  const { service, deployment } = poolerManifests(INPUT);
  const selector = { 'howdah.io/pooler': 's-abcde12345' };
  expect(service).toMatchObject({
    metadata: { ownerReferences: [{ kind: 'Cluster', uid: 'uid-of-the-cluster' }] },
    spec: { type: 'NodePort', selector, ports: [{ nodePort: 30_002 }] },
  });
  expect(deployment).toMatchObject({
    metadata: { ownerReferences: [{ kind: 'Cluster', uid: 'uid-of-the-cluster' }] },
    spec: {
      replicas: 1,
      strategy: { type: 'Recreate' },
      template: {
        metadata: { labels: { ...selector, 'howdah.io/service': 'abcde12345' } },
        spec: {
          automountServiceAccountToken: false,
          securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
          containers: [
            {
              securityContext: {
                allowPrivilegeEscalation: false,
                capabilities: { drop: ['ALL'] },
                readOnlyRootFilesystem: true,
              },
              // 83 connections have 1660 clients.
              resources: { limits: { memory: '232Mi' } },
            },
          ],
        },
      },
    },
  });
  // The operator and its Services select pods by this label.
  expect(JSON.stringify(deployment)).not.toContain('cnpg.io/cluster');
});

test('it verifies its server, and no client may use a role of ours', () => {
  const text = JSON.stringify(poolerManifests(INPUT).deployment);
  expect(text).toContain("tsdb_transaction = host='s-abcde12345-rw' port=5432");
  expect(text).toContain('server_tls_sslmode = verify-full');
  expect(text).toContain('client_tls_sslmode = require');
  expect(text).toContain('max_prepared_statements');
  expect(text).toContain(
    'howdah_pooler,howdah_reader,howdah_control,streaming_replica  0.0.0.0/0  reject',
  );
});

test('limited networks: it examines addresses, and has a certificate for its server', () => {
  const { service, deployment } = poolerManifests({ ...INPUT, networks: ['192.0.2.0/24'] });
  expect(service).toMatchObject({ spec: { externalTrafficPolicy: 'Local' } });
  const text = JSON.stringify(deployment);
  expect(text).toContain('hostssl   all  all  192.0.2.0/24  scram-sha-256');
  expect(text).not.toContain('all  0.0.0.0/0  scram-sha-256');
  expect(text).toContain('server_tls_cert_file = /client/tls.crt');
  expect(text).toContain('s-abcde12345-pooler-certificate');
  expect(text).toContain('"cnpg.io/instanceRole":"primary"');
  const unlimited = poolerManifests(INPUT);
  expect(unlimited.service).toMatchObject({ spec: { externalTrafficPolicy: 'Cluster' } });
  expect(JSON.stringify(unlimited.deployment)).not.toContain('-pooler-certificate');
});

test('another size, port, image or state is another pooler, and another owner is not', () => {
  const hashes = [
    INPUT,
    { ...INPUT, maxConnections: 200 },
    { ...INPUT, nodePort: 30_003 },
    { ...INPUT, running: false },
    { ...INPUT, networks: ['192.0.2.0/24'] },
    { ...INPUT, region: { ...INPUT.region, poolerImage: 'example.com/pgbouncer:1.25.2' } },
  ].map((input) => poolerManifests(input).hash);
  expect(new Set(hashes).size).toBe(hashes.length);
  expect(poolerManifests({ ...INPUT, owner: 'another' }).hash).toBe(hashes[0]);
});
