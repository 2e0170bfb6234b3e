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
  /** How long a deleted service can be restored, in ms. */
  undeleteMs: number;
  /** The metadata database; null: one of our own. */
  databaseUrl: string | null;
}>;

/** How backups are kept: a snapshot at least this often while something is written, and all that the window needs. */
export type BackupPolicy = Readonly<{ windowMs: number; snapshotEveryMs: number }>;

/** A setting that stops the start. */
export class ConfigError extends Error {}

type Setting = { flag: string; default: string; meaning: string };

/** Every setting: the table of docs/operating.md, `howdah up --help` and this file's checks read the same rows. */
export const SETTINGS = {
  HOWDAH_HOME: { flag: '--home', default: '~/.howdah', meaning: 'where the installation keeps its files' },
  HOWDAH_HOST: { flag: '--host', default: '127.0.0.1', meaning: 'address the API and the databases listen on; 0.0.0.0 for all' },
  HOWDAH_PORT: { flag: '--port', default: '8080', meaning: 'port of the API' },
  HOWDAH_PORT_RANGE: { flag: '--port-range', default: '20000-29999', meaning: 'ports for databases, first-last' },
  HOWDAH_PUBLIC_HOST: {
    flag: '--public-host',
    default: 'HOWDAH_HOST, or localhost',
    meaning: 'host name that endpoints and certificates carry',
  },
  HOWDAH_SPARES: { flag: '--spares', default: '1', meaning: 'running servers kept ready for the next create, 0 to 16' },
  HOWDAH_BACKUP_DAYS: { flag: '--backup-days', default: '3', meaning: 'how far back a service can be forked at a point in time' },
  HOWDAH_SNAPSHOT_HOURS: { flag: '--snapshot-hours', default: '24', meaning: 'hours between snapshots of a service that is written to' },
  HOWDAH_UNDELETE_HOURS: {
    flag: '--undelete-hours',
    default: '24',
    meaning: 'hours in which a deleted service can be restored; 0 for none',
  },
  DATABASE_URL: { flag: '--database-url', default: 'a PostgreSQL of our own', meaning: 'where the control plane keeps its records' },
} as const satisfies Record<string, Setting>;
export type SettingName = keyof typeof SETTINGS;

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Environment variables of the launcher, which are not settings of the control plane. */
const LAUNCHER_VARIABLES = ['HOWDAH_INSTALL'];

/**
 * @param env the environment; variables that begin with HOWDAH_ and are no setting are refused
 * @param flags values of command line flags by setting name; they win over the environment
 * @throws ConfigError
 */
export function readConfig(env: NodeJS.ProcessEnv, flags: Partial<Record<SettingName, string>> = {}): Config {
  const unknown = Object.keys(env).filter((key) => key.startsWith('HOWDAH_') && !(key in SETTINGS) && !LAUNCHER_VARIABLES.includes(key));
  if (unknown.length > 0) {
    throw new ConfigError(`${unknown.join(', ')}: no such setting; known are ${Object.keys(SETTINGS).join(', ')}`);
  }
  const value = (name: SettingName): string | undefined => flags[name] ?? (env[name] === '' ? undefined : env[name]);
  const host = address('HOWDAH_HOST', value('HOWDAH_HOST') ?? '127.0.0.1');
  const port = integer('HOWDAH_PORT', value('HOWDAH_PORT') ?? '8080', 1, 65535);
  const portRange = range('HOWDAH_PORT_RANGE', value('HOWDAH_PORT_RANGE') ?? '20000-29999');
  if (port >= portRange[0] && port <= portRange[1]) {
    throw new ConfigError(`HOWDAH_PORT: found ${port}, which lies inside HOWDAH_PORT_RANGE ${portRange.join('-')}; set one of them apart`);
  }
  return Object.freeze({
    home: directory('HOWDAH_HOME', value('HOWDAH_HOME') ?? '~/.howdah'),
    host,
    port,
    portRange,
    publicHost: hostName('HOWDAH_PUBLIC_HOST', value('HOWDAH_PUBLIC_HOST') ?? (isWildcard(host) ? 'localhost' : host)),
    spares: integer('HOWDAH_SPARES', value('HOWDAH_SPARES') ?? '1', 0, 16),
    backups: Object.freeze({
      windowMs: decimal('HOWDAH_BACKUP_DAYS', value('HOWDAH_BACKUP_DAYS') ?? '3', 0.001, 3650) * DAY_MS,
      snapshotEveryMs: decimal('HOWDAH_SNAPSHOT_HOURS', value('HOWDAH_SNAPSHOT_HOURS') ?? '24', 0.001, 8760) * HOUR_MS,
    }),
    undeleteMs: decimal('HOWDAH_UNDELETE_HOURS', value('HOWDAH_UNDELETE_HOURS') ?? '24', 0, 87_600) * HOUR_MS,
    databaseUrl: databaseUrl(value('DATABASE_URL')),
  });
}

/** Whether an address means every address of the machine. */
export function isWildcard(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

function directory(name: string, value: string): string {
  // Resolved, nothing would be the directory that the command was given in.
  if (value === '') throw new ConfigError(`${name}: found ""; allowed is the path of a directory`);
  return resolve(value.replace(/^~(?=\/|$)/, homedir()));
}

function address(name: string, value: string): string {
  if (value !== 'localhost' && isIP(value) === 0) {
    throw new ConfigError(`${name}: found ${JSON.stringify(value)}; allowed is an IP address of this machine, 0.0.0.0, :: or localhost`);
  }
  return value;
}

function hostName(name: string, value: string): string {
  if (isIP(value) === 0 && !/^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))*$/i.test(value)) {
    throw new ConfigError(`${name}: found ${JSON.stringify(value)}; allowed is a host name or an IP address, without port or scheme`);
  }
  return value;
}

function integer(name: string, value: string, min: number, max: number): number {
  if (!/^[0-9]{1,9}$/.test(value) || Number(value) < min || Number(value) > max) {
    throw new ConfigError(`${name}: found ${JSON.stringify(value)}; allowed is a whole number from ${min} to ${max}`);
  }
  return Number(value);
}

function decimal(name: string, value: string, min: number, max: number): number {
  if (!/^[0-9]{1,6}(\.[0-9]{1,6})?$/.test(value) || Number(value) < min || Number(value) > max) {
    throw new ConfigError(`${name}: found ${JSON.stringify(value)}; allowed is a number from ${min} to ${max}`);
  }
  return Number(value);
}

function range(name: string, value: string): readonly [number, number] {
  const match = /^([0-9]{1,5})-([0-9]{1,5})$/.exec(value);
  const first = Number(match?.[1]);
  const last = Number(match?.[2]);
  if (match === null || first < 1024 || last > 65535 || first > last) {
    throw new ConfigError(`${name}: found ${JSON.stringify(value)}; allowed is FIRST-LAST with 1024 ≤ FIRST ≤ LAST ≤ 65535`);
  }
  return [first, last];
}

function databaseUrl(value: string | undefined): string | null {
  if (value === undefined) return null;
  if (!/^postgres(ql)?:\/\//.test(value) || !URL.canParse(value)) {
    throw new ConfigError('DATABASE_URL: not a URL of the form postgres://user:password@host:port/database');
  }
  return value;
}
