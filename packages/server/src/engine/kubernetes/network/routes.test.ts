/** Endpoints with a domain, and what the gateway and clients find there. */
import { expect, test } from 'vitest';
import { listeningAt } from '../cluster/manifest.ts';
import { publicEndpoint, routeManifest, routePlace, routeTarget, endpointOf } from './routes.ts';
import { hostsOf } from '../cluster/objects.ts';

const ID = 'abcdefghij';
const DOMAIN = { host: 'db.example.com', domain: 'db.example.com' };
const PORTS = { host: 'node.example.com', domain: null };

test('each part of a service has a name of its own at one port', () => {
  expect(publicEndpoint('db.example.com', ID, 'servers')).toEqual({
    host: `${ID}.db.example.com`,
    port: 5432,
  });
  expect(publicEndpoint('db.example.com', ID, 'pooler').host).toBe(`${ID}-pooler.db.example.com`);
});

test('the servers of a Cluster are where their clients find them', () => {
  const cluster = { name: `r-${ID}`, nodePort: null };
  expect(endpointOf(DOMAIN, cluster)).toEqual({ host: `${ID}.db.example.com`, port: 5432 });
  expect(endpointOf(PORTS, cluster)).toBe(null);
  expect(endpointOf(PORTS, { ...cluster, nodePort: 30_001 })).toEqual({
    host: 'node.example.com',
    port: 30_001,
  });
});

test('a certificate has the names of the endpoints', () => {
  const named = { name: `s-${ID}`, id: ID, projectId: 'projectabc' };
  expect(hostsOf(DOMAIN, named).slice(0, 3)).toEqual([
    `${ID}.db.example.com`,
    `${ID}-pooler.db.example.com`,
    `s-${ID}-rw`,
  ]);
  expect(hostsOf(PORTS, named).slice(0, 2)).toEqual(['node.example.com', `s-${ID}-rw`]);
});

test('a Service behind the gateway has no port of the nodes', () => {
  const more = { targetPort: 6432, networks: null, selector: { a: 'b' } };
  expect(JSON.stringify(listeningAt({ ...more, nodePort: null }))).toBe(
    '{"type":"ClusterIP","selector":{"a":"b"},' +
      '"ports":[{"name":"postgres","port":5432,"targetPort":6432}]}',
  );
  // In this order: the hash of poolers that earlier releases have made depends on it.
  expect(JSON.stringify(listeningAt({ ...more, nodePort: 30_001 }))).toBe(
    '{"type":"NodePort","externalTrafficPolicy":"Cluster","selector":{"a":"b"},' +
      '"ports":[{"name":"postgres","port":5432,"targetPort":6432,"nodePort":30001}]}',
  );
});

test('a route names the Service of one endpoint', () => {
  const cluster = { cluster: `s-${ID}`, projectId: 'projectabc' };
  const manifest = routeManifest({ ...cluster, id: ID, region: 'kube', part: 'servers' });
  expect(manifest).toMatchObject({
    metadata: { name: `db-${ID}`, namespace: 'howdah-gateway' },
    spec: { type: 'ExternalName', externalName: `s-${ID}-endpoint.howdah-projectabc.svc` },
  });
  expect(routePlace(ID, 'pooler').name).toBe(`db-${ID}-pooler`);
  expect(routeTarget({ ...cluster, part: 'pooler' })).toBe(`s-${ID}-pooler.howdah-projectabc.svc`);
});
