import { homedir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ConfigError, isWildcard, readConfig, type Config } from './config.ts';
import { listSettings, parseSetting, type SettingName } from './settings.ts';

const problem = (env: NodeJS.ProcessEnv, flags?: Parameters<typeof readConfig>[1]): string => {
  try {
    readConfig(env, flags);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return error instanceof Error ? error.message : '';
  }
  throw new Error(`accepted: ${JSON.stringify({ env, flags })}`);
};

test('the defaults', () => {
  const config = readConfig({});
  expect(config).toEqual({
    home: join(homedir(), '.howdah'),
    host: '127.0.0.1',
    port: 8080,
    portRange: [20000, 29999],
    regions: [],
    regionAliases: expect.arrayContaining(['us-east-1', 'eu-west-1', 'az-eastus2']),
    publicHost: '127.0.0.1',
    spares: 1,
    boundsCpu: false,
    backups: { windowMs: 3 * 86_400_000, snapshotEveryMs: 86_400_000, verifyEveryMs: 86_400_000 },
    heartbeatMs: 1000,
    failover: { cooldownMs: 30_000, lagLimitBytes: 1_048_576 },
    readLagLimit: { bytes: 134_217_728, seconds: 60 },
    historyMs: 365 * 86_400_000,
    maintenanceWindow: null,
    restoreWindowMs: 86_400_000,
    webhookNetworks: [],
    credentialPrograms: [],
    databaseUrl: null,
    tls: { on: false, files: null },
    trustedProxies: [],
    apiHosts: [],
    connectionsPerAddress: 512,
    failedKeysPerMinute: 100,
    changesPerDay: 20_000,
    uidRange: [70_000, 89_999],
    singleProject: false,
    simulatedRegion: false,
    localRegion: true,
  });
  expect(Object.isFrozen(config)).toBe(true);
});

const GOOD: [SettingName, string, Partial<Config>][] = [
  [
    'HOWDAH_MAINTENANCE_WINDOW',
    'Sun 03:00-05:00',
    { maintenanceWindow: { day: 0, from: 180, to: 300 } },
  ],
  ['HOWDAH_HOME', '/srv/howdah', { home: '/srv/howdah' }],
  ['HOWDAH_HOME', '~/cloud', { home: join(homedir(), 'cloud') }],
  ['HOWDAH_HOME', '~', { home: homedir() }],
  ['HOWDAH_HOME', '~other', { home: join(process.cwd(), '~other') }],
  [
    'HOWDAH_WEBHOOK_NETWORKS',
    '127.0.0.1, 10.0.0.0/8',
    { webhookNetworks: ['127.0.0.1', '10.0.0.0/8'] },
  ],
  [
    'HOWDAH_CREDENTIAL_PROGRAMS',
    '/usr/local/bin/aws,/opt/a b',
    { credentialPrograms: ['/usr/local/bin/aws', '/opt/a b'] },
  ],
  ['HOWDAH_HOST', '0.0.0.0', { host: '0.0.0.0', publicHost: 'localhost' }],
  ['HOWDAH_HOST', '::', { host: '::', publicHost: 'localhost' }],
  ['HOWDAH_HOST', '::1', { host: '::1', publicHost: '::1' }],
  ['HOWDAH_HOST', 'localhost', { host: 'localhost', publicHost: 'localhost' }],
  ['HOWDAH_PORT', '1', { port: 1 }],
  ['HOWDAH_PORT', '65535', { port: 65535 }],
  ['HOWDAH_PORT_RANGE', '1024-65535', { portRange: [1024, 65535] }],
  ['HOWDAH_PORT_RANGE', '5000-5000', { portRange: [5000, 5000] }],
  ['HOWDAH_REGION_ALIASES', 'none', { regionAliases: [] }],
  ['HOWDAH_REGION_ALIASES', 'us-east-1, home', { regionAliases: ['us-east-1', 'home'] }],
  ['HOWDAH_REGIONS', 'none', { regions: [] }],
  [
    'HOWDAH_REGIONS',
    'nvme=/mnt/nvme/howdah/:15000-19999, b-2=/mnt/a:b=c:1024-1024',
    {
      regions: [
        { code: 'nvme', directory: '/mnt/nvme/howdah', portRange: [15000, 19999] },
        { code: 'b-2', directory: '/mnt/a:b=c', portRange: [1024, 1024] },
      ],
    },
  ],
  ['HOWDAH_PUBLIC_HOST', 'db.example.com', { publicHost: 'db.example.com' }],
  ['HOWDAH_PUBLIC_HOST', '192.0.2.7', { publicHost: '192.0.2.7' }],
  ['HOWDAH_SPARES', '0', { spares: 0 }],
  ['HOWDAH_SPARES', '16', { spares: 16 }],
  ['HOWDAH_CPU_BOUND', 'none', { boundsCpu: false }],
  ['HOWDAH_CPU_BOUND', 'size', { boundsCpu: true }],
  ['HOWDAH_HOST', '192.0.2.7', { tls: { on: true, files: null } }],
  ['HOWDAH_HOST', '0.0.0.0', { tls: { on: true, files: null } }],
  ['HOWDAH_HOST', '127.0.0.2', { tls: { on: false, files: null } }],
  ['HOWDAH_UID_RANGE', '65536-65536', { uidRange: [65_536, 65_536] }],
  ['HOWDAH_SINGLE_PROJECT', 'yes', { singleProject: true }],
  ['HOWDAH_SIMULATED_REGION', 'yes', { simulatedRegion: true }],
  ['HOWDAH_TLS', 'on', { tls: { on: true, files: null } }],
  ['HOWDAH_API_HOSTS', 'none', { apiHosts: [] }],
  [
    'HOWDAH_API_HOSTS',
    'db.example.com, *.example.org',
    { apiHosts: ['db.example.com', '*.example.org'] },
  ],
  ['HOWDAH_TRUSTED_PROXIES', 'none', { trustedProxies: [] }],
  [
    'HOWDAH_TRUSTED_PROXIES',
    '192.0.2.7, 10.0.0.0/8,2001:db8::/32',
    { trustedProxies: ['192.0.2.7', '10.0.0.0/8', '2001:db8::/32'] },
  ],
  ['HOWDAH_CONNECTIONS_PER_ADDRESS', '1', { connectionsPerAddress: 1 }],
  ['HOWDAH_FAILED_KEYS_PER_MINUTE', '0', { failedKeysPerMinute: 0 }],
  ['HOWDAH_CHANGES_PER_DAY', '5', { changesPerDay: 5 }],
  ['HOWDAH_DATABASE_URL', 'postgres://u:p@h:5432/d', { databaseUrl: 'postgres://u:p@h:5432/d' }],
  ['HOWDAH_DATABASE_URL', 'postgresql://h/d', { databaseUrl: 'postgresql://h/d' }],
];
test.each(GOOD)('%s=%s', (name, value, expected) => {
  // The API's port must be outside the range of the databases' ports.
  const env = name === 'HOWDAH_PORT_RANGE' ? { HOWDAH_PORT: '80' } : {};
  expect(readConfig({ ...env, [name]: value })).toMatchObject(expected);
  expect(readConfig(env, { [name]: value })).toMatchObject(expected);
});

/** Each with a part of what the message says is allowed. */
const BAD: [SettingName, string, string][] = [
  ['HOWDAH_API_HOSTS', 'https://db.example.com', 'host name'],
  ['HOWDAH_API_HOSTS', '*', 'host name'],
  ['HOWDAH_HOST', 'example.com', 'IP address'],
  ['HOWDAH_HOST', '127.0.0.1:80', 'IP address'],
  ['HOWDAH_HOST', '256.0.0.1', 'IP address'],
  ['HOWDAH_PORT', '0', '1 to 65535'],
  ['HOWDAH_PORT', '65536', '1 to 65535'],
  ['HOWDAH_PORT', '80a', '1 to 65535'],
  ['HOWDAH_PORT', ' 80', '1 to 65535'],
  ['HOWDAH_PORT', '-1', '1 to 65535'],
  ['HOWDAH_PORT', '8e3', '1 to 65535'],
  ['HOWDAH_PORT_RANGE', '20000', 'FIRST-LAST'],
  ['HOWDAH_PORT_RANGE', '30000-20000', 'FIRST-LAST'],
  ['HOWDAH_PORT_RANGE', '1023-2000', '1024 ≤ FIRST'],
  ['HOWDAH_PORT_RANGE', '2000-65536', '65535'],
  ['HOWDAH_PORT_RANGE', '2000 - 3000', 'FIRST-LAST'],
  ['HOWDAH_UID_RANGE', '0-70000', '1000 ≤ FIRST'],
  ['HOWDAH_UID_RANGE', '60000-70000', 'without 65534'],
  ['HOWDAH_UID_RANGE', '70001-70000', 'FIRST ≤ LAST'],
  ['HOWDAH_SINGLE_PROJECT', 'true', 'yes, no'],
  ['HOWDAH_REGIONS', 'nvme', 'CODE=DIRECTORY:FIRST-LAST'],
  ['HOWDAH_REGIONS', 'nvme=/mnt', 'CODE=DIRECTORY:FIRST-LAST'],
  ['HOWDAH_REGIONS', 'NVMe=/mnt:15000-19999', 'CODE of a-z'],
  ['HOWDAH_REGIONS', '1=/mnt:15000-19999', 'CODE of a-z'],
  ['HOWDAH_REGIONS', 'nvme=mnt:15000-19999', 'DIRECTORY as absolute path'],
  ['HOWDAH_REGIONS', 'nvme=/mnt:19999-15000', 'FIRST ≤ LAST'],
  ['HOWDAH_REGIONS', 'nvme=/mnt:80-19999', '1024 ≤ FIRST'],
  ['HOWDAH_REGIONS', 'nvme=/mnt:15000-65536', '65535'],
  ['HOWDAH_PUBLIC_HOST', 'http://example.com', 'host name'],
  ['HOWDAH_PUBLIC_HOST', 'example.com:80', 'host name'],
  ['HOWDAH_PUBLIC_HOST', 'a b', 'host name'],
  ['HOWDAH_PUBLIC_HOST', "x'y", 'host name'],
  ['HOWDAH_PUBLIC_HOST', 'x\ny', 'host name'],
  ['HOWDAH_PUBLIC_HOST', '-x', 'host name'],
  ['HOWDAH_SPARES', '17', '0 to 16'],
  ['HOWDAH_SPARES', 'none', '0 to 16'],
  ['HOWDAH_BACKUP_DAYS', '0', '0.001 to 3650'],
  ['HOWDAH_BACKUP_DAYS', '1e1', '0.001 to 3650'],
  ['HOWDAH_RESTORE_HOURS', '87601', '0 to 87600'],
  ['HOWDAH_MAINTENANCE_WINDOW', 'Sun 3-5', 'HH:MM-HH:MM'],
  ['HOWDAH_HEARTBEAT_MS', '99', '100 to 60000'],
  ['HOWDAH_TLS', 'ON', 'auto, on, off'],
  ['HOWDAH_WEBHOOK_NETWORKS', '10.0.0.0/33', 'networks'],
  ['HOWDAH_CREDENTIAL_PROGRAMS', 'aws', 'absolute paths'],
];
test.each(BAD)(
  '%s=%s is refused: the message names the setting, the value found and what is allowed',
  (name, value, allowed) => {
    for (const message of [problem({ [name]: value }), problem({}, { [name]: value })]) {
      expect(message).toContain(`${name}: found ${JSON.stringify(value)}`);
      expect(message).toContain(allowed);
    }
  },
);

test('a refusal ends with an example, as a variable or as a flag', () => {
  expect(problem({ HOWDAH_PORT: 'x' })).toBe(
    'HOWDAH_PORT: found "x"; allowed: a whole number from 1 to 65535; for example HOWDAH_PORT=8080',
  );
  expect(problem({ HOWDAH_PORT: '81' }, { HOWDAH_PORT: 'x' })).toMatch(
    /; for example --port 8080$/,
  );
  for (const { name, default: fallback, example } of listSettings()) {
    expect(parseSetting(name, example).wrong, name).toEqual([]);
    expect(example, name).not.toMatch(/^(none)?$/);
    expect(fallback, name).not.toBe('');
  }
});

test('the wrong entries of a list are shown, and the right ones are not', () => {
  expect(problem({ HOWDAH_TRUSTED_PROXIES: '10.0.0.1, x,10.0.0.2,y/8' })).toContain(
    'HOWDAH_TRUSTED_PROXIES: found "x", "y/8";',
  );
});

test('all problems are reported together, one in a line', () => {
  const message = problem(
    { HOWDAH_PROT: '1', HOWDAH_SPARES: '99', HOWDAH_TLS_CERT: '/etc/a.pem' },
    { HOWDAH_HOST: 'example.com' },
  );
  expect(message.split('\n').map((line) => line.split(':')[0])).toEqual([
    'HOWDAH_PROT',
    'HOWDAH_HOST',
    'HOWDAH_SPARES',
    'HOWDAH_TLS_KEY',
  ]);
});

test('settings that do not fit together are compared only if each is right', () => {
  const message = problem({ HOWDAH_PORT: '25000', HOWDAH_PORT_RANGE: 'x', HOWDAH_SPARES: '99' });
  expect(message).not.toContain('25000');
  expect(message.split('\n')).toHaveLength(2);
});

test('the URL of the metadata database is not shown, as it may contain a password', () => {
  for (const url of [
    'mysql://u:secret@h/d',
    'postgres:/secret',
    'secret',
    'postgres://u:secret@[h/d',
  ]) {
    const message = problem({ HOWDAH_DATABASE_URL: url });
    expect(message).toMatch(/^HOWDAH_DATABASE_URL: .*postgres:\/\//);
    expect(message).not.toContain('secret');
  }
});

test('the port of the API inside the range of the databases is refused', () => {
  for (const port of ['20000', '25000', '29999'])
    expect(problem({ HOWDAH_PORT: port })).toMatch(/HOWDAH_PORT: found \d+.*20000-29999/);
  expect(readConfig({ HOWDAH_PORT: '19999' }).port).toBe(19999);
  expect(readConfig({ HOWDAH_PORT: '30000' }).port).toBe(30000);
});

describe('regions that do not fit together are refused, with what to change', () => {
  test.each([
    ['local=/mnt:15000-19999', 'found the code local, which is taken; choose another one'],
    ['simulated=/mnt:15000-19999', 'found the code simulated, which is taken; choose another one'],
    ['a=/a:15000-15999,a=/b:16000-16999', 'found the code a twice'],
    ['a=/srv:15000-15999', '/srv of a and /srv/howdah of HOWDAH_HOME are not apart'],
    ['a=/srv/howdah/a:15000-15999', '/srv/howdah/a of a and /srv/howdah of HOWDAH_HOME'],
    ['a=/mnt:15000-15999,b=/mnt/../mnt/x:16000-16999', '/mnt/x of b and /mnt of a are not apart'],
    ['a=/:15000-15999', '/ of a and /srv/howdah of HOWDAH_HOME are not apart'],
    ['a=/mnt:15000-20000', 'the ports 15000-20000 of a overlap with 20000-29999'],
    ['a=/mnt:8000-9000', 'the ports 8000-9000 of a overlap with 8080 of HOWDAH_PORT'],
    [
      'a=/a:15000-16000,b=/b:16000-17000',
      'the ports 16000-17000 of b overlap with 15000-16000 of a',
    ],
  ])('%s', (regions, words) => {
    const message = problem({ HOWDAH_HOME: '/srv/howdah', HOWDAH_REGIONS: regions });
    expect(message).toContain(words);
    expect(message.split('\n').every((line) => line.startsWith('HOWDAH_REGIONS: '))).toBe(true);
  });

  test('directories whose names begin alike are apart', () => {
    const regions = 'a=/srv/howdah-2:15000-15999,b=/srv/..howdah:16000-16999';
    expect(
      readConfig({ HOWDAH_HOME: '/srv/howdah', HOWDAH_REGIONS: regions }).regions,
    ).toHaveLength(2);
  });
});

test('unknown settings are refused by name, with the known ones; others are ignored', () => {
  const message = problem({ HOWDAH_PROT: '80', HOWDAH_X: '', PATH: '/bin' });
  expect(message).toContain('HOWDAH_PROT, HOWDAH_X');
  for (const { name } of listSettings()) expect(message).toContain(name);
  expect(readConfig({ PATH: '/bin', HOWDAHX: '1', XHOWDAH_PORT: '1' }).port).toBe(8080);
});

test('an empty variable counts as not set; an empty flag is refused', () => {
  expect(readConfig({ HOWDAH_PORT: '', HOWDAH_HOME: '', HOWDAH_DATABASE_URL: '' })).toEqual(
    readConfig({}),
  );
  for (const name of [
    'HOWDAH_HOME',
    'HOWDAH_HOST',
    'HOWDAH_PORT',
    'HOWDAH_PORT_RANGE',
    'HOWDAH_PUBLIC_HOST',
    'HOWDAH_SPARES',
    'HOWDAH_DATABASE_URL',
  ] as const)
    expect(problem({}, { [name]: '' })).toContain(name);
});

test('flags win over the environment', () => {
  expect(
    readConfig({ HOWDAH_PORT: '81', HOWDAH_SPARES: '2' }, { HOWDAH_PORT: '82' }),
  ).toMatchObject({ port: 82, spares: 2 });
});

test('every setting has a flag of its own, named after it, and says what it is', () => {
  for (const { name, flag, meaning, allowed } of listSettings()) {
    expect(flag).toBe(`--${name.replace('HOWDAH_', '').toLowerCase().replaceAll('_', '-')}`);
    expect(meaning, name).not.toBe('');
    expect(allowed, name).not.toBe('');
  }
});

test('wildcards', () => {
  expect(['0.0.0.0', '::'].every(isWildcard)).toBe(true);
  expect(['127.0.0.1', '::1', 'localhost'].some(isWildcard)).toBe(false);
});

test('the API speaks TLS if other machines can reach it, unless a setting says otherwise', () => {
  expect(readConfig({ HOWDAH_HOST: '0.0.0.0', HOWDAH_TLS: 'off' }).tls).toEqual({
    on: false,
    files: null,
  });
  const files = { HOWDAH_TLS_CERT: '/etc/a.pem', HOWDAH_TLS_KEY: '/etc/a.key' };
  expect(readConfig(files).tls).toEqual({
    on: true,
    files: { certificate: '/etc/a.pem', key: '/etc/a.key' },
  });
  expect(problem({ HOWDAH_TLS_CERT: '/etc/a.pem' })).toContain('HOWDAH_TLS_KEY: missing');
  expect(problem({ HOWDAH_TLS_KEY: '/etc/a.key' })).toContain('HOWDAH_TLS_CERT: missing');
  expect(problem({ ...files, HOWDAH_TLS: 'off' })).toContain('HOWDAH_TLS: found off');
  expect(problem({ HOWDAH_TLS: 'yes' })).toContain('allowed: auto, on, off');
  for (const wrong of ['proxy.example', '10.0.0.0/33', '::/129', '10.0.0.1,', '10.0.0.0/8/8'])
    expect(problem({ HOWDAH_TRUSTED_PROXIES: wrong }), wrong).toContain('HOWDAH_TRUSTED_PROXIES');
});

test('a machine that runs no services needs the metadata database of another one', () => {
  const url = { HOWDAH_DATABASE_URL: 'postgres://h/d' };
  expect(readConfig({ ...url, HOWDAH_LOCAL_REGION: 'no' }).localRegion).toBe(false);
  expect(problem({ HOWDAH_LOCAL_REGION: 'no' })).toContain('without HOWDAH_DATABASE_URL');
  expect(
    problem({ ...url, HOWDAH_LOCAL_REGION: 'no', HOWDAH_REGIONS: 'a=/mnt:15000-15999' }),
  ).toContain('HOWDAH_LOCAL_REGION: found no together with HOWDAH_REGIONS');
});
