import { expect, test } from 'vitest';
import { instancePaths } from '../host/layout.ts';
import { poolerConf, poolLimits, type PoolerInput } from './pooler-conf.ts';

const input: PoolerInput = {
  paths: instancePaths("/srv/it's here"),
  version: '1.18.0',
  listen: { address: '127.0.0.1', port: 20002 },
  allowedNetworks: null,
  server: { paths: instancePaths("/srv/it's here"), port: 20001, maxConnections: 100 },
  certificatePem: 'one',
};
const conf = poolerConf(input);

test('both pools together leave 17 connections, and there are 20 clients to each of theirs', () => {
  for (const maxConnections of [100, 200, 1000]) {
    const { session, transaction, clients } = poolLimits(maxConnections);
    expect(session + transaction).toBe(maxConnections - 17);
    expect(clients).toBe(20 * (maxConnections - 17));
  }
});

test('every setting stands once, on a line of its own', () => {
  const names = conf
    .split('\n')
    .flatMap((line) =>
      line === '' || /^[;[]/.test(line) ? [] : [/^([a-z_]+) = .+$/.exec(line)?.[1]],
    );
  expect(names).not.toContain(undefined);
  expect(new Set(names).size).toBe(names.length);
  expect(conf).toContain(
    "\ntsdb = host='/srv/it''s here/run' port=20001 dbname=tsdb pool_mode=session pool_size=41 max_db_connections=41\n",
  );
  expect(conf).toContain(
    "\ntsdb_transaction = host='/srv/it''s here/run' port=20001 dbname=tsdb pool_mode=transaction pool_size=42 max_db_connections=42\n",
  );
  expect(conf).toContain('\nlisten_port = 20002\n');
  expect(conf).toContain('\nclient_tls_sslmode = require\n');
});

test('prepared statements are carried over by versions that can', () => {
  for (const version of ['1.21.0', '1.24.1', '2.0'])
    expect(poolerConf({ ...input, version })).toContain('\nmax_prepared_statements = ');
  expect(conf).not.toContain('max_prepared_statements');
});

test('another certificate, size, port or address is another configuration', () => {
  expect(poolerConf({ ...input })).toBe(conf);
  const others = [
    { ...input, certificatePem: 'two' },
    { ...input, server: { paths: input.server.paths, port: 20001, maxConnections: 200 } },
    { ...input, listen: { address: '127.0.0.1', port: 20003 } },
    { ...input, listen: { address: '0.0.0.0', port: 20002 } },
  ];
  expect(new Set([conf, ...others.map(poolerConf)]).size).toBe(others.length + 1);
});
