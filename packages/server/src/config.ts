/**
 * The settings of an installation: read once, checked, frozen and passed as a value.
 * Unknown or malformed ones stop the start with a message that names the setting, what was found and what is allowed.
 */
import { homedir } from 'node:os';
import { isIP } from 'node:net';
import { resolve } from 'node:path';

export type Config = Readonly<{
  /** Where the installation lives: credentials, CA, and data or a link to them. */
  home: string;
  /** The address that the API and the databases listen on. */
  host: string;
  port: number;
  /** First and last port for databases. */
  portRange: readonly [number, number];
  /** The host that endpoints name. */
  publicHost: string;
  /** Spare servers kept running, so that a create takes a fraction of the time. */
  spares: number;
  backups: BackupPolicy;
  /** After how long without an answer a member of a service with replicas is taken to hang, once a signal has stopped it; in ms. */
  heartbeatMs: number;
  failover: FailoverPolicy;
  readLagLimit: ReadLagLimit;
  /** How long a deleted service can be restored, in ms. */
  undeleteMs: number;
  /** How long operations that have ended and entries of the audit log are kept, in ms. */
  historyMs: number;
  /** Private addresses and networks that webhooks may be delivered to. */
  webhookNetworks: readonly string[];
  /** The metadata database; null: one of our own. */
  databaseUrl: string | null;
  /** Whether the API speaks TLS, and with which files; null: with a certificate of our own CA. */
  tls: Readonly<{ on: boolean; files: Readonly<{ certificate: string; key: string }> | null }>;
  /** Addresses and networks whose word about a client's address (X-Forwarded-For) is taken. */
  trustedProxies: readonly string[];
  /** Names under which the API is reached, beside the public host, this machine's and those of its certificate. */
  apiHosts: readonly string[];
  connectionsPerAddress: number;
  failedKeysPerMinute: number;
  changesPerDay: number;
  /** First and last operating system user for services, where the control plane is root. */
  uidRange: readonly [number, number];
  /** Whether only one project may have services where they are not kept from each other by users of their own. */
  singleProject: boolean;
}>;

/** How backups are kept: a snapshot at least this often while something is written, all that the window needs, and verified this often. */
export type BackupPolicy = Readonly<{
  windowMs: number;
  snapshotEveryMs: number;
  verifyEveryMs: number;
}>;

/**
 * When another member takes over by itself: not sooner after the last time than `restMs`, and without synchronous replicas only one that
 * lacks at most `lagLimitBytes` of the log.
 */
export type FailoverPolicy = Readonly<{ restMs: number; lagLimitBytes: number }>;

/** How far behind a node of a read replica set may be and still get connections: both count. */
export type ReadLagLimit = Readonly<{ bytes: number; seconds: number }>;

/** A setting that stops the start. */
export class ConfigError extends Error {}

type Setting = { flag: string; default: string; meaning: string };

/** Every setting: the table of docs/operating.md, `howdah up --help` and this file's checks read the same rows. */
export const SETTINGS = {
  HOWDAH_HOME: {
    flag: '--home',
    default: '~/.howdah',
    meaning: 'where the installation keeps its files',
  },
  HOWDAH_HOST: {
    flag: '--host',
    default: '127.0.0.1',
    meaning: 'address the API and the databases listen on; 0.0.0.0 for all',
  },
  HOWDAH_PORT: { flag: '--port', default: '8080', meaning: 'port of the API' },
  HOWDAH_PORT_RANGE: {
    flag: '--port-range',
    default: '20000-29999',
    meaning: 'ports for databases, first-last',
  },
  HOWDAH_PUBLIC_HOST: {
    flag: '--public-host',
    default: 'HOWDAH_HOST, or localhost',
    meaning: 'host name that endpoints and certificates carry',
  },
  HOWDAH_SPARES: {
    flag: '--spares',
    default: '1',
    meaning: 'running servers kept ready for the next create, 0 to 16',
  },
  HOWDAH_BACKUP_DAYS: {
    flag: '--backup-days',
    default: '3',
    meaning: 'how far back a service can be forked at a point in time',
  },
  HOWDAH_SNAPSHOT_HOURS: {
    flag: '--snapshot-hours',
    default: '24',
    meaning: 'hours between snapshots of a service that is written to',
  },
  HOWDAH_VERIFY_HOURS: {
    flag: '--verify-hours',
    default: '24',
    meaning: 'hours between verifications of the newest backup of a running service',
  },
  HOWDAH_RESTORE_HOURS: {
    flag: '--restore-hours',
    default: '24',
    meaning: 'hours in which a deleted service can be restored; 0 for none',
  },
  HOWDAH_HISTORY_DAYS: {
    flag: '--history-days',
    default: '365',
    meaning: 'days for which operations that have ended and entries of the audit log are kept',
  },
  HOWDAH_HEARTBEAT_MS: {
    flag: '--heartbeat-ms',
    default: '1000',
    meaning:
      'milliseconds after which the stopped primary of a service with replicas is ended and replaced',
  },
  HOWDAH_FAILOVER_COOLDOWN_SECONDS: {
    flag: '--failover-cooldown-seconds',
    default: '30',
    meaning: 'seconds after a failover in which a primary that dies is restarted in place',
  },
  HOWDAH_FAILOVER_LAG_BYTES: {
    flag: '--failover-lag-bytes',
    default: '1048576',
    meaning:
      'the most of the log that an asynchronous replica may lack when it takes over by itself',
  },
  HOWDAH_TLS: {
    flag: '--tls',
    default: 'auto',
    meaning:
      'whether the API speaks TLS: on, off (behind a proxy that does), or auto: on where HOWDAH_HOST is more than this machine',
  },
  HOWDAH_TLS_CERT: {
    flag: '--tls-cert',
    default: 'one of our own CA',
    meaning: 'file with the certificate of the API and its chain, PEM',
  },
  HOWDAH_TLS_KEY: {
    flag: '--tls-key',
    default: 'one of our own CA',
    meaning: 'file with the key of that certificate, PEM',
  },
  HOWDAH_TRUSTED_PROXIES: {
    flag: '--trusted-proxies',
    default: 'none',
    meaning: 'addresses or networks whose X-Forwarded-For is believed, separated by commas',
  },
  HOWDAH_API_HOSTS: {
    flag: '--api-hosts',
    default: 'none',
    meaning:
      'further names under which the API is reached without a key, as by browsers through a proxy, separated by commas; `*.` stands for one label',
  },
  HOWDAH_CONNECTIONS_PER_ADDRESS: {
    flag: '--connections-per-address',
    default: '512',
    meaning:
      'open connections to the API that one address may have; trusted proxies may have any number',
  },
  HOWDAH_CHANGES_PER_DAY: {
    flag: '--changes-per-day',
    default: '20000',
    meaning:
      'accepted changes of a project within a day, after which changes are answered with 429; reads never are',
  },
  HOWDAH_FAILED_KEYS_PER_MINUTE: {
    flag: '--failed-keys-per-minute',
    default: '100',
    meaning:
      'wrong keys a minute from one address, after which they are answered with 429; valid ones never are',
  },
  HOWDAH_WEBHOOK_NETWORKS: {
    flag: '--webhook-networks',
    default: 'none',
    meaning: 'private networks that webhooks may be delivered to, like 127.0.0.0/8,10.0.0.0/8',
  },
  HOWDAH_READ_LAG_BYTES: {
    flag: '--read-lag-bytes',
    default: '134217728',
    meaning:
      'the most of the log that a node of a read replica set may not have replayed and still get connections',
  },
  HOWDAH_READ_LAG_SECONDS: {
    flag: '--read-lag-seconds',
    default: '60',
    meaning: 'the most seconds that what such a node shows may be old',
  },
  HOWDAH_UID_RANGE: {
    flag: '--uid-range',
    default: '70000-89999',
    meaning:
      'operating system users for services where Howdah runs as root, first-last; they need no entries in /etc/passwd',
  },
  HOWDAH_SINGLE_PROJECT: {
    flag: '--single-project',
    default: 'no',
    meaning:
      'yes: where services cannot have users of their own, services of a second project are refused',
  },
  DATABASE_URL: {
    flag: '--database-url',
    default: 'a PostgreSQL of our own',
    meaning: 'the metadata database, where the control plane keeps its own data',
  },
} as const satisfies Record<string, Setting>;
export type SettingName = keyof typeof SETTINGS;

/** None of Debian's adduser (1000-59999), systemd's DynamicUser (61184-65519) or subordinate users (from 100000 on). */
export const DEFAULT_UID_RANGE = [70_000, 89_999] as const;
/** Debian policy, section 9.2.2: below are the system's and users'. */
const FIRST_UID = 1000;
/** The last but one that Linux has. */
const LAST_UID = 2 ** 32 - 3;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Environment variables of the launcher, which are not settings of the control plane. */
const LAUNCHER_VARIABLES = ['HOWDAH_INSTALL'];

/**
 * @param env the environment; variables that begin with HOWDAH_ and are no setting are refused
 * @param flags values of command line flags by setting name; they win over the environment
 * @throws ConfigError
 */
export function readConfig(
  env: NodeJS.ProcessEnv,
  flags: Partial<Record<SettingName, string>> = {},
): Config {
  const unknown = Object.keys(env).filter(
    (key) => key.startsWith('HOWDAH_') && !(key in SETTINGS) && !LAUNCHER_VARIABLES.includes(key),
  );
  if (unknown.length > 0) {
    throw new ConfigError(
      `${unknown.join(', ')}: no such setting; known are ${Object.keys(SETTINGS).join(', ')}`,
    );
  }
  const value = (name: SettingName): string | undefined =>
    flags[name] ?? (env[name] === '' ? undefined : env[name]);
  const host = address('HOWDAH_HOST', value('HOWDAH_HOST') ?? '127.0.0.1');
  const port = integer('HOWDAH_PORT', value('HOWDAH_PORT') ?? '8080', 1, 65535);
  const portRange = range('HOWDAH_PORT_RANGE', value('HOWDAH_PORT_RANGE') ?? '20000-29999');
  if (port >= portRange[0] && port <= portRange[1]) {
    throw new ConfigError(
      `HOWDAH_PORT: found ${port}, which lies inside HOWDAH_PORT_RANGE ${portRange.join('-')}; set one of them apart`,
    );
  }
  return Object.freeze({
    home: directory('HOWDAH_HOME', value('HOWDAH_HOME') ?? '~/.howdah'),
    host,
    port,
    portRange,
    publicHost: hostName(
      'HOWDAH_PUBLIC_HOST',
      value('HOWDAH_PUBLIC_HOST') ?? (isWildcard(host) ? 'localhost' : host),
    ),
    spares: integer('HOWDAH_SPARES', value('HOWDAH_SPARES') ?? '1', 0, 16),
    backups: Object.freeze({
      windowMs:
        decimal('HOWDAH_BACKUP_DAYS', value('HOWDAH_BACKUP_DAYS') ?? '3', 0.001, 3650) * DAY_MS,
      snapshotEveryMs:
        decimal('HOWDAH_SNAPSHOT_HOURS', value('HOWDAH_SNAPSHOT_HOURS') ?? '24', 0.001, 8760) *
        HOUR_MS,
      verifyEveryMs:
        decimal('HOWDAH_VERIFY_HOURS', value('HOWDAH_VERIFY_HOURS') ?? '24', 0.001, 8760) * HOUR_MS,
    }),
    heartbeatMs: integer(
      'HOWDAH_HEARTBEAT_MS',
      value('HOWDAH_HEARTBEAT_MS') ?? '1000',
      100,
      60_000,
    ),
    failover: Object.freeze({
      restMs:
        integer(
          'HOWDAH_FAILOVER_COOLDOWN_SECONDS',
          value('HOWDAH_FAILOVER_COOLDOWN_SECONDS') ?? '30',
          0,
          86_400,
        ) * 1000,
      lagLimitBytes: integer(
        'HOWDAH_FAILOVER_LAG_BYTES',
        value('HOWDAH_FAILOVER_LAG_BYTES') ?? '1048576',
        0,
        999_999_999,
      ),
    }),
    readLagLimit: Object.freeze({
      bytes: integer(
        'HOWDAH_READ_LAG_BYTES',
        value('HOWDAH_READ_LAG_BYTES') ?? '134217728',
        0,
        999_999_999,
      ),
      seconds: decimal(
        'HOWDAH_READ_LAG_SECONDS',
        value('HOWDAH_READ_LAG_SECONDS') ?? '60',
        0,
        86_400,
      ),
    }),
    undeleteMs:
      decimal('HOWDAH_RESTORE_HOURS', value('HOWDAH_RESTORE_HOURS') ?? '24', 0, 87_600) * HOUR_MS,
    historyMs:
      decimal('HOWDAH_HISTORY_DAYS', value('HOWDAH_HISTORY_DAYS') ?? '365', 0.001, 36_500) * DAY_MS,
    webhookNetworks: networks(
      'HOWDAH_WEBHOOK_NETWORKS',
      value('HOWDAH_WEBHOOK_NETWORKS') ?? 'none',
    ),
    databaseUrl: databaseUrl(value('DATABASE_URL')),
    tls: Object.freeze(
      tls(host, value('HOWDAH_TLS') ?? 'auto', value('HOWDAH_TLS_CERT'), value('HOWDAH_TLS_KEY')),
    ),
    trustedProxies: Object.freeze(
      networks('HOWDAH_TRUSTED_PROXIES', value('HOWDAH_TRUSTED_PROXIES') ?? 'none'),
    ),
    apiHosts: Object.freeze(hostNames('HOWDAH_API_HOSTS', value('HOWDAH_API_HOSTS') ?? 'none')),
    connectionsPerAddress: integer(
      'HOWDAH_CONNECTIONS_PER_ADDRESS',
      value('HOWDAH_CONNECTIONS_PER_ADDRESS') ?? '512',
      1,
      1_000_000,
    ),
    failedKeysPerMinute: integer(
      'HOWDAH_FAILED_KEYS_PER_MINUTE',
      value('HOWDAH_FAILED_KEYS_PER_MINUTE') ?? '100',
      0,
      1_000_000,
    ),
    changesPerDay: integer(
      'HOWDAH_CHANGES_PER_DAY',
      value('HOWDAH_CHANGES_PER_DAY') ?? '20000',
      1,
      999_999_999,
    ),
    uidRange: Object.freeze(
      uidRange('HOWDAH_UID_RANGE', value('HOWDAH_UID_RANGE') ?? DEFAULT_UID_RANGE.join('-')),
    ),
    singleProject: yesOrNo('HOWDAH_SINGLE_PROJECT', value('HOWDAH_SINGLE_PROJECT') ?? 'no'),
  });
}

/** Whether an address means every address of the machine. */
export function isWildcard(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

/** Whether an address can be reached from this machine only. */
function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}

/** Whether the API can be reached from elsewhere without TLS, as somebody asked for. */
export function isInTheClear({ host, tls }: Pick<Config, 'host' | 'tls'>): boolean {
  return !tls.on && !isLoopback(host);
}

/** Beyond this machine keys travel in the clear only where somebody says so. */
function tls(
  host: string,
  mode: string,
  certificate: string | undefined,
  key: string | undefined,
): Config['tls'] {
  if (mode !== 'auto' && mode !== 'on' && mode !== 'off')
    throw new ConfigError(`HOWDAH_TLS: found ${JSON.stringify(mode)}; allowed: auto, on, off`);
  if ((certificate === undefined) !== (key === undefined))
    throw new ConfigError(
      `${certificate === undefined ? 'HOWDAH_TLS_CERT' : 'HOWDAH_TLS_KEY'}: missing; a certificate and its key go together`,
    );
  const files =
    certificate === undefined || key === undefined
      ? null
      : { certificate: resolve(certificate), key: resolve(key) };
  if (mode === 'off' && files !== null)
    throw new ConfigError(
      'HOWDAH_TLS: found off together with HOWDAH_TLS_CERT; leave one of them away',
    );
  return { on: mode === 'on' || (mode === 'auto' && (files !== null || !isLoopback(host))), files };
}

function networks(name: string, value: string): string[] {
  if (value === 'none') return [];
  const found = value.split(',').map((one) => one.trim());
  const isNetwork = (text: string): boolean => {
    const [address = '', bits, more] = text.split('/');
    const family = isIP(address);
    return (
      family !== 0 &&
      more === undefined &&
      (bits === undefined ||
        (/^[0-9]{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128)))
    );
  };
  const wrong = found.find((one) => !isNetwork(one));
  if (wrong !== undefined)
    throw new ConfigError(
      `${name}: found ${JSON.stringify(wrong)}; allowed are addresses and networks like 192.0.2.7 or 10.0.0.0/8, separated by commas`,
    );
  return found;
}

function directory(name: string, value: string): string {
  // Resolved, nothing would be the directory that the command was given in.
  if (value === '') throw new ConfigError(`${name}: found ""; allowed is the path of a directory`);
  return resolve(value.replace(/^~(?=\/|$)/, homedir()));
}

function address(name: string, value: string): string {
  if (value !== 'localhost' && isIP(value) === 0) {
    throw new ConfigError(
      `${name}: found ${JSON.stringify(value)}; allowed is an IP address of this machine, 0.0.0.0, :: or localhost`,
    );
  }
  return value;
}

function hostNames(name: string, value: string): string[] {
  if (value === 'none') return [];
  return value.split(',').map((one) => {
    const [, wildcard = '', host = ''] = /^\s*(\*\.)?(.*?)\s*$/.exec(one) ?? [];
    return `${wildcard}${hostName(name, host)}`;
  });
}

function hostName(name: string, value: string): string {
  if (
    isIP(value) === 0 &&
    !/^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))*$/i.test(value)
  ) {
    throw new ConfigError(
      `${name}: found ${JSON.stringify(value)}; allowed is a host name or an IP address, without port or scheme`,
    );
  }
  return value;
}

function integer(name: string, value: string, min: number, max: number): number {
  if (!/^[0-9]{1,9}$/.test(value) || Number(value) < min || Number(value) > max) {
    throw new ConfigError(
      `${name}: found ${JSON.stringify(value)}; allowed is a whole number from ${min} to ${max}`,
    );
  }
  return Number(value);
}

function decimal(name: string, value: string, min: number, max: number): number {
  if (!/^[0-9]{1,6}(\.[0-9]{1,6})?$/.test(value) || Number(value) < min || Number(value) > max) {
    throw new ConfigError(
      `${name}: found ${JSON.stringify(value)}; allowed is a number from ${min} to ${max}`,
    );
  }
  return Number(value);
}

function range(name: string, value: string): readonly [number, number] {
  const match = /^([0-9]{1,5})-([0-9]{1,5})$/.exec(value);
  const first = Number(match?.[1]);
  const last = Number(match?.[2]);
  if (match === null || first < 1024 || last > 65535 || first > last) {
    throw new ConfigError(
      `${name}: found ${JSON.stringify(value)}; allowed is FIRST-LAST with 1024 ≤ FIRST ≤ LAST ≤ 65535`,
    );
  }
  return [first, last];
}

function uidRange(name: string, value: string): readonly [number, number] {
  const match = /^([0-9]{1,10})-([0-9]{1,10})$/.exec(value);
  const [first, last] = [Number(match?.[1]), Number(match?.[2])];
  const nobody = 65_534;
  if (
    match === null ||
    first < FIRST_UID ||
    last > LAST_UID ||
    first > last ||
    (first <= nobody + 1 && last >= nobody)
  ) {
    throw new ConfigError(
      `${name}: found ${JSON.stringify(value)}; allowed is FIRST-LAST with ${FIRST_UID} ≤ FIRST ≤ LAST ≤ ${LAST_UID}, without 65534 and 65535`,
    );
  }
  return [first, last];
}

function yesOrNo(name: string, value: string): boolean {
  if (value !== 'yes' && value !== 'no')
    throw new ConfigError(`${name}: found ${JSON.stringify(value)}; allowed: yes, no`);
  return value === 'yes';
}

function databaseUrl(value: string | undefined): string | null {
  if (value === undefined) return null;
  if (!/^postgres(ql)?:\/\//.test(value) || !URL.canParse(value)) {
    throw new ConfigError(
      'DATABASE_URL: not a URL of the form postgres://user:password@host:port/database',
    );
  }
  return value;
}
