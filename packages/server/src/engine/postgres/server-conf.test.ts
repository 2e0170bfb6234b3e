import { SERVICE_SIZES } from '@howdah/contract';
import { expect, test } from 'vitest';
import { filesWhileProvisioning, serverConf, type ServerInput } from './server-conf.ts';

const input: ServerInput = {
  paths: {
    config: "/srv/it's here/config",
    socket: "/srv/it's here/run",
    logs: "/srv/it's here/logs",
    archive: "/srv/it's here/archive",
  },
  installation: { major: 17, readOnly: { path: null } },
  extensions: [],
  size: SERVICE_SIZES[0],
  storageGb: 10,
  listen: { address: '127.0.0.1', port: 20001 },
  allowedNetworks: null,
};
const users = { control: 'we"ird', owner: { name: 'howdah' }, gateway: null };
const files = serverConf(input, users);
const lines = (text: string) =>
  text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));

test('every setting appears once, on a line of its own', () => {
  const names = lines(files['postgresql.conf']).map((line) => /^([a-z_.]+) = .+$/.exec(line)?.[1]);
  expect(names).not.toContain(undefined);
  expect(new Set(names).size).toBe(names.length);
  expect(files['postgresql.conf']).toContain("\nlog_directory = '/srv/it''s here/logs'\n");
  expect(files['postgresql.conf']).toContain('\nport = 20001\n');
  expect(files['postgresql.conf']).toContain("\nlisten_addresses = '127.0.0.1'\n");
  expect(files['postgresql.conf']).toContain('\nssl = on\n');
});

test('who may connect: the control plane by the socket, users by TLS and SCRAM', () => {
  expect(lines(files['pg_hba.conf']).map((line) => line.split(/\s+/))).toEqual([
    ['local', 'all', 'howdah', 'peer', 'map=control'],
    ['local', 'replication', 'howdah', 'peer', 'map=replication'],
    ['local', 'all', 'howdah_reader', 'peer', 'map=control'],
    ['local', 'template0,template1', 'all', 'reject'],
    ['local', 'all', 'howdah_pooler', 'peer', 'map=pooler'],
    ['local', 'all', 'all', 'scram-sha-256'],
    ['hostssl', 'all', 'howdah,howdah_pooler,howdah_reader,howdah_slots', 'all', 'reject'],
    ['hostssl', 'template0,template1', 'all', 'all', 'reject'],
    ['hostssl', 'all', 'all', 'all', 'scram-sha-256'],
  ]);
  expect(lines(files['pg_ident.conf'])).toEqual([
    'control "we""ird" howdah',
    'control "we""ird" howdah_reader',
    'replication "howdah" howdah',
    'replication "howdah" howdah_slots',
    'pooler "howdah" howdah_pooler',
  ]);
});

test('while it is copied, the role of the copy replicates, and reaches no database', () => {
  const rules = (copied: boolean): string[] =>
    lines(serverConf({ ...input, copied }, users)['pg_hba.conf']).map((line) =>
      line.replaceAll(/\s+/g, ' '),
    );
  // The first rule that fits decides.
  expect(rules(true)).toEqual([
    'hostssl replication postgres all scram-sha-256',
    'hostssl all postgres all reject',
    'local all postgres reject',
    ...rules(false),
  ]);
  expect(rules(false).some((rule) => rule.includes('replication postgres'))).toBe(false);
});

test('a service with a user of its own is superuser nowhere', () => {
  const made = serverConf(input, {
    control: 'root',
    owner: { name: 'howdah-service' },
    gateway: { name: 'howdah-gateway' },
  });
  expect(lines(made['pg_ident.conf'])).toEqual([
    'control "root" howdah',
    'control "root" howdah_reader',
    'replication "howdah-service" howdah',
    'replication "howdah-service" howdah_slots',
    'pooler "howdah-service" howdah_pooler',
    'pooler "howdah-gateway" howdah_pooler',
  ]);
});

test('with others, a standby reads slots in one database, and a drill writes into it', () => {
  const more = lines(serverConf({ ...input, replicated: true }, users)['pg_hba.conf']).filter(
    (line) => !lines(files['pg_hba.conf']).includes(line),
  );
  // The first rule that fits decides.
  expect(more.map((line) => line.split(/\s+/))).toEqual([
    ['local', 'replication', 'howdah_slots', 'peer', 'map=replication'],
    ['local', 'postgres', 'howdah_slots', 'peer', 'map=replication'],
    ['local', 'all', 'howdah_slots', 'reject'],
    ['hostssl', 'postgres', '_howdah_probe', '127.0.0.1/32', 'scram-sha-256'],
    ['hostssl', 'all', '_howdah_probe', 'all', 'reject'],
  ]);
});

test('only the control plane may connect to a fork before it is provisioned', () => {
  const provisioning = filesWhileProvisioning(files);
  expect(lines(provisioning['pg_hba.conf'])).toEqual(lines(files['pg_hba.conf']).slice(0, -1));
  expect({ ...provisioning, 'pg_hba.conf': files['pg_hba.conf'] }).toEqual(files);
});

test('without an address there is no TCP', () => {
  const { 'postgresql.conf': conf } = serverConf({ ...input, listen: null }, users);
  expect(conf).toContain("\nlisten_addresses = ''\n");
  expect(conf).not.toContain('ssl');
});

test('the same input makes the same files, and only what depends on it differs', () => {
  expect(serverConf({ ...input }, users)).toEqual(files);
  for (const other of [
    { ...input, size: SERVICE_SIZES[1] },
    { ...input, extensions: ['timescaledb' as const] },
    { ...input, listen: { address: '0.0.0.0', port: 20001 } },
    { ...input, listen: { address: '127.0.0.1', port: 20002 } },
  ]) {
    const made = serverConf(other, users);
    expect(made['postgresql.conf']).not.toBe(files['postgresql.conf']);
    expect(made['pg_hba.conf']).toBe(files['pg_hba.conf']);
  }
  expect(
    serverConf(input, { control: 'howdah', owner: null, gateway: null })['postgresql.conf'],
  ).toBe(files['postgresql.conf']);
});
