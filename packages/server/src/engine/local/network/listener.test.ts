import { expect, test } from 'vitest';
import { listenerOf, hostsOf, isAllowed, runsInNetworkOf, launchOptionsOf } from './listener.ts';
import { gatewayConfig } from '../proxy/gateway.ts';
import { configFiles } from '../postgres/files.ts';
import { instancePaths, daemonPaths } from '../host/layout.ts';
import { localPoolerConf } from '../proxy/pooler-files.ts';

const ALLOWED_NETWORKS = ['10.1.0.0/16', '10.2.0.0/24', '2001:db8::/32'];
const OPEN = { vpc: null, allowedNetworks: null };
const NETWORK = { vpc: { id: '1000', address: '10.1.0.2' }, allowedNetworks: ALLOWED_NETWORKS };
const RULES = { vpc: { id: '1000', address: null }, allowedNetworks: ALLOWED_NETWORKS };
const ALLOW_LIST = { vpc: null, allowedNetworks: ALLOWED_NETWORKS };
const listener = (spec: Parameters<typeof listenerOf>[0]) =>
  listenerOf(spec, '127.0.0.1', 'howdah-1a2b3c4d-');

test('listeners are in the network of their VPC, or stay where they were', () => {
  expect(listener(OPEN)).toEqual({ address: '127.0.0.1', namespace: null, allowedNetworks: null });
  expect(listener(NETWORK)).toEqual({
    address: '10.1.0.2',
    namespace: 'howdah-1a2b3c4d-1000',
    allowedNetworks: null,
  });
  for (const spec of [RULES, ALLOW_LIST])
    expect(listener(spec)).toEqual({
      address: '127.0.0.1',
      namespace: null,
      allowedNetworks: ALLOWED_NETWORKS,
    });
  expect([OPEN, NETWORK, RULES, ALLOW_LIST].map((spec) => hostsOf(listener(spec)))).toEqual([
    [],
    ['10.1.0.2'],
    [],
    [],
  ]);
});

test('a server in another network is recognised by its namespace', async () => {
  expect(launchOptionsOf(listener(RULES))).toEqual({ within: [], environment: {} });
  expect(launchOptionsOf(listener(NETWORK))).toEqual({
    within: ['nsenter', '--net=/run/netns/howdah-1a2b3c4d-1000', '--'],
    environment: { HOWDAH_PLACE: 'howdah-1a2b3c4d-1000 - 10.1.0.2' },
  });
  expect(await runsInNetworkOf(process.pid, listener(OPEN))).toBe(true);
  expect(await runsInNetworkOf(process.pid, listener(RULES))).toBe(true);
  expect(await runsInNetworkOf(process.pid, listener(NETWORK))).toBe(false);
});

test.each([
  ['10.1.0.0', true],
  ['10.1.255.255', true],
  ['10.2.0.255', true],
  ['10.2.1.0', false],
  ['10.0.255.255', false],
  ['127.0.0.1', false],
  ['::ffff:10.1.0.1', true],
  ['::1', false],
  ['2001:db8::7', true],
  ['2001:db9::7', false],
])('%s is let in: %s', (address, expected) => {
  expect(isAllowed(ALLOWED_NETWORKS, address)).toBe(expected);
});

test('the rules of all three name the networks that are let in, and no other', () => {
  const paths = instancePaths('/x');
  const listen = { address: '127.0.0.1', port: 20000 };
  const installation = {
    name: '18',
    major: 18,
    version: '18.4',
    bin: '/bin',
    source: 'system',
    extensions: [],
    timescaledb: null,
    readOnly: { path: null, missing: null },
  } as const;
  const hba = (allowedNetworks: readonly string[] | null): string[] => {
    const input = {
      paths,
      installation: { ...installation, extensions: [] },
      extensions: [],
      size: 'shared',
      storageGb: 10,
      listen,
      allowedNetworks,
    } as const;
    const files = configFiles(
      { ...input, extensions: [] },
      { control: 'root', owner: null, gateway: null },
    );
    const rules = files['pg_hba.conf']
      .split('\n')
      .filter((line) => line.includes('scram') && line.startsWith('hostssl'));
    return rules.map((line) => line.split(/\s+/)[3] ?? '');
  };
  expect(hba(null)).toEqual(['all']);
  expect(hba(ALLOWED_NETWORKS)).toEqual(ALLOWED_NETWORKS);

  const gateway = gatewayConfig(daemonPaths('/x/haproxy'), listen);
  expect(gateway).toContain('tcp-request connection reject unless { src -f ../haproxy.allowed }');
  // The gateway's own way in is for the control plane's user alone.
  expect(gateway).toContain('bind unix@./.s.PGSQL.20000 mode 600');

  const pooler = (allowedNetworks: readonly string[] | null) =>
    localPoolerConf({
      paths,
      version: '1.24.1',
      listen,
      allowedNetworks,
      databases: null,
      server: { paths, port: 1, major: 17, maxConnections: 100 },
      certificatePem: 'x',
    });
  expect(pooler(null)).not.toContain('For clients of');
  expect(pooler(ALLOWED_NETWORKS)).toContain(
    '; For clients of 10.1.0.0/16, 10.2.0.0/24, 2001:db8::/32.',
  );
});
