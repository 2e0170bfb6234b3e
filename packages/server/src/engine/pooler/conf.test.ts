import { expect, test } from 'vitest';
import { hostRules, poolerConf, poolLimits, type PoolerInput } from './conf.ts';

const input: PoolerInput = {
  version: '1.18.0',
  console: { directory: '/srv/pooler', role: 'howdah' },
  files: { hba: '/srv/hba', users: '/srv/users', certificate: '/srv/crt', key: '/srv/key' },
  listen: { address: '127.0.0.1', port: 20002 },
  allowedNetworks: null,
  databases: ['app'],
  server: {
    host: "/srv/it's here/run",
    port: 20001,
    major: 17,
    maxConnections: 100,
    authority: null,
    client: null,
  },
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
      line === '' || /^[;[]/.test(line) ? [] : [/^([a-z_*]+) = .+$/.exec(line)?.[1]],
    );
  expect(names).not.toContain(undefined);
  expect(new Set(names).size).toBe(names.length);
  expect(conf).toContain(
    "\ntsdb = host='/srv/it''s here/run' port=20001 dbname=tsdb " +
      'pool_mode=session pool_size=41 max_db_connections=41\n',
  );
  expect(conf).toContain(
    "\ntsdb_transaction = host='/srv/it''s here/run' port=20001 dbname=tsdb " +
      'pool_mode=transaction pool_size=42 max_db_connections=42\n',
  );
  expect(conf).toContain('\nlisten_port = 20002\n');
  expect(conf).toContain('\nclient_tls_sslmode = require\n');
});

test('prepared statements are carried over by versions that can', () => {
  for (const version of ['1.21.0', '1.24.1', '2.0'])
    expect(poolerConf({ ...input, version })).toContain('\nmax_prepared_statements = ');
  expect(conf).not.toContain('max_prepared_statements');
});

test('each database has a pool, and a role may take the connections of all pools', () => {
  const where = "host='/srv/it''s here/run' port=20001";
  const pool = 'pool_mode=session pool_size=21 max_db_connections=21';
  expect(conf).toContain(`\napp = ${where} dbname=app ${pool}\n`);
  expect(conf).not.toContain('\n* = ');
  const all = poolerConf({ ...input, version: '1.24.1', databases: null });
  expect(all).toContain(`\n* = ${where} ${pool}\n`);
  expect(conf).toContain('\nmax_user_connections = 83\n');
});

test('new versions ask one database, others ask each for the roles that may connect', () => {
  expect(conf).toContain(' where pg_catalog.has_database_privilege(role::pg_catalog.name, ');
  expect(conf).not.toContain('auth_dbname');
  const newer = poolerConf({ ...input, version: '1.24.1' });
  expect(newer).toContain('\nauth_dbname = tsdb\n');
  expect(newer).not.toContain('has_database_privilege');
});

test('options of a client are taken where PostgreSQL reports them', () => {
  const kept = (version: string, major: number) =>
    /^track_extra_parameters = (.+)$/m.exec(
      poolerConf({ ...input, version, server: { ...input.server, major } }),
    )?.[1];
  expect(kept('1.18.0', 18)).toBeUndefined();
  expect(kept('1.24.1', 17)).toBe('IntervalStyle, default_transaction_read_only');
  expect(kept('1.24.1', 18)).toBe('IntervalStyle, default_transaction_read_only, search_path');
});

test('another certificate, size, port or address is another configuration', () => {
  expect(poolerConf({ ...input })).toBe(conf);
  const others = [
    { ...input, certificatePem: 'two' },
    { ...input, server: { ...input.server, maxConnections: 200 } },
    { ...input, listen: { address: '127.0.0.1', port: 20003 } },
    { ...input, listen: { address: '0.0.0.0', port: 20002 } },
  ];
  expect(new Set([conf, ...others.map(poolerConf)]).size).toBe(others.length + 1);
});

test('a server elsewhere is verified, and nobody reaches a console that has no directory', () => {
  const elsewhere = poolerConf({
    ...input,
    console: null,
    server: { ...input.server, host: 's-1-rw', authority: '/authority/ca.crt' },
  });
  expect(elsewhere).toContain("\ntsdb = host='s-1-rw' port=20001 ");
  expect(elsewhere).toContain('\nserver_tls_sslmode = verify-full\n');
  expect(elsewhere).toContain('\nserver_tls_ca_file = /authority/ca.crt\n');
  expect(elsewhere).not.toContain('server_tls_cert_file');
  const known = { certificate: '/client/tls.crt', key: '/client/tls.key' };
  const wanted = { ...input.server, authority: '/authority/ca.crt', client: known };
  expect(poolerConf({ ...input, server: wanted })).toContain(
    '\nserver_tls_cert_file = /client/tls.crt\nserver_tls_key_file = /client/tls.key\n',
  );
  expect(elsewhere).toContain('\nunix_socket_dir =\n');
  expect(elsewhere).not.toContain('admin_users');
  expect(conf).not.toContain('server_tls');
});

test('no client may use a role of ours, and all others need TLS', () => {
  expect(hostRules(['ours', 'theirs'], ['10.1.0.0/16']).split('\n')).toEqual([
    'host      all  ours,theirs  0.0.0.0/0  reject',
    'host      template0,template1,pgbouncer  all  0.0.0.0/0  reject',
    'host      all  ours,theirs  ::/0  reject',
    'host      template0,template1,pgbouncer  all  ::/0  reject',
    'hostssl   all  all  10.1.0.0/16  scram-sha-256',
    '',
  ]);
});
