/** The path of an installation, in the languages of the programs that it configures. */
import { expect, test } from 'vitest';
import { strayImages } from './admin/leftovers.ts';
import { daemonPaths, instancePaths } from './host/layout.ts';
import { replicationConf, WAITS_FOR_NOBODY } from '../postgres/replication/replication-conf.ts';
import { gatewayConfig, setGatewayConfig } from './proxy/gateway.ts';
import { localPoolerConf } from './proxy/pooler-files.ts';

const HOME = "/srv/o'clock #1 {x}; %d";
const paths = instancePaths(`${HOME}/data/services/abcdefghij`);
const listen = { address: '127.0.0.1', port: 20_000 };

test('HAProxy gets paths from its working directory on, in which nothing has a meaning', () => {
  const gateway = daemonPaths(`${HOME}/data/services/abcdefghij/haproxy`);
  const nodes = [{ n: 1, port: 5432, socketDirectory: `${paths.root}/members/1/run` }];
  const texts = [gatewayConfig(gateway, listen), setGatewayConfig(gateway, listen, nodes)];
  for (const text of texts) expect(text).not.toContain('clock');
  expect(texts[1]).toContain('server node1 unix@../members/1/run/.s.PGSQL.5432 disabled');
});

test('a standby gets a connection string of which the path is one value', () => {
  const text = replicationConf('m1', { paths, port: 5432 }, WAITS_FOR_NOBODY);
  expect(text).toContain(`primary_conninfo = 'host=''/srv/o\\\\''clock #1 {x}; %d/data/services/`);
});

test('PgBouncer gets the socket of the server as one quoted value', () => {
  const text = localPoolerConf({
    paths,
    version: '1.24.1',
    listen,
    allowedNetworks: null,
    databases: [],
    server: { major: 18, paths, port: 5432, maxConnections: 100 },
    certificatePem: 'x',
  });
  expect(text).toContain(
    "tsdb = host='/srv/o''clock #1 {x}; %d/data/services/abcdefghij/run' port=5432 ",
  );
});

test('the command that unmounts a store names its directory as a shell reads it', () => {
  const mounts = "36 35 7:1 / /srv/o'clock\\040#1/data rw shared:1 - btrfs /dev/loop1 rw";
  const [stray] = strayImages(
    [{ device: '/dev/loop1', file: "/srv/o'clock #1/data.img (deleted)" }],
    mounts,
  );
  expect(stray?.remedy).toBe(`umount '/srv/o'\\''clock #1/data'`);
});
