/**
 * The configuration of an installation: read once, checked, frozen and passed as a value.
 * `settings.ts` says which settings there are. A wrong one stops the start with a message.
 */
import { homedir } from 'node:os';
import { resolve, isAbsolute, relative } from 'node:path';
import { Check, Default } from 'typebox/value';
import { problemOfPath } from './lib/path-characters.ts';
import {
  parseMaintenanceWindow,
  type MaintenanceWindow,
  describeSetting,
  isSettingName,
  listSettings,
  parseRegion,
  parseSetting,
  SETTINGS,
  type FurtherRegion,
  type SettingName,
  type Settings,
  RESERVED_REGIONS,
} from './settings.ts';

export type Config = Readonly<{
  /** Where the installation keeps its files: credentials, CA, and data or a link to them. */
  home: string;
  /** The address that the API and the databases listen on. */
  host: string;
  port: number;
  /** First and last port for databases. */
  portRange: readonly [number, number];
  /** The regions of this machine beside the one in `home`. */
  regions: readonly FurtherRegion[];
  /** Further names of the first region. */
  regionAliases: readonly string[];
  /** The host name in endpoints. */
  publicHost: string;
  /** How many spares are kept, so that a create takes a fraction of the time. */
  spares: number;
  /** Whether a size is a bound of the CPU too, for services that do not say it themselves. */
  boundsCpu: boolean;
  backups: BackupPolicy;
  /** When services are restarted for a newer minor version; null: never. */
  maintenanceWindow: MaintenanceWindow | null;
  /** A member of a service with replicas that a signal has stopped hangs after this long, in ms. */
  heartbeatMs: number;
  failover: FailoverPolicy;
  readLagLimit: ReadLagLimit;
  /** How long a deleted service can be restored, in ms. */
  restoreWindowMs: number;
  /** How long ended operations and entries of the audit log are kept, in ms. */
  historyMs: number;
  /** Private addresses and networks that webhooks may be delivered to. */
  webhookNetworks: readonly string[];
  /** Paths of programs that kubeconfigs may run for credentials. */
  credentialPrograms: readonly string[];
  /** The metadata database; null: one of our own. */
  databaseUrl: string | null;
  /** Whether the API speaks TLS, and its files; null: a certificate of our own CA. */
  tls: Readonly<{ on: boolean; files: Readonly<{ certificate: string; key: string }> | null }>;
  /** Addresses and networks whose X-Forwarded-For is trusted. */
  trustedProxies: readonly string[];
  /** Names of the API, beside the public host, this machine's and those of its certificate. */
  apiHosts: readonly string[];
  connectionsPerAddress: number;
  failedKeysPerMinute: number;
  changesPerDay: number;
  /** First and last operating system user for services, where the control plane is root. */
  uidRange: readonly [number, number];
  /** Whether one project alone may have services where they cannot have users of their own. */
  singleProject: boolean;
  /** Whether there is a region whose services are simulated. */
  simulatedRegion: boolean;
  /**
   * Whether this machine runs services. If not, nothing is written outside of the metadata database
   * and the clusters of regions, and this control plane waits while another one runs.
   */
  localRegion: boolean;
}>;

/** A snapshot at least this often while a service is written to, and a verification this often. */
export type BackupPolicy = Readonly<{
  windowMs: number;
  snapshotEveryMs: number;
  verifyEveryMs: number;
}>;

/**
 * Automatic failovers of a service are at least `cooldownMs` apart. Without synchronous replicas,
 * the new primary may lack at most `lagLimitBytes` of WAL.
 */
export type FailoverPolicy = Readonly<{ cooldownMs: number; lagLimitBytes: number }>;

/** How far a replica-set node may be behind and still get connections: both limits apply. */
export type ReadLagLimit = Readonly<{ bytes: number; seconds: number }>;

/** A setting that stops the start. */
export class ConfigError extends Error {}

const SECOND_MS = 1000;
const HOUR_MS = 3600 * SECOND_MS;
const DAY_MS = 24 * HOUR_MS;

/** Environment variables of the launcher, which are not settings of the control plane. */
const LAUNCHER_VARIABLES = ['HOWDAH_INSTALL'];

type Flags = Partial<Record<SettingName, string>>;

/** Settings that must fit together; `problem` is asked if each of them is right by itself. */
const RULES: readonly {
  of: readonly SettingName[];
  problem: (settings: Settings) => string | null;
}[] = [
  {
    of: ['HOWDAH_PORT', 'HOWDAH_PORT_RANGE'],
    problem: ({ HOWDAH_PORT: port, HOWDAH_PORT_RANGE: [first, last] }) =>
      port < first || port > last
        ? null
        : `HOWDAH_PORT: found ${port}, which lies inside HOWDAH_PORT_RANGE ` +
          `${first}-${last}; change one of them`,
  },
  { of: ['HOWDAH_HOME'], problem: (settings) => problemOfPath(homeOf(settings)) },
  {
    of: ['HOWDAH_REGIONS', 'HOWDAH_HOME', 'HOWDAH_PORT', 'HOWDAH_PORT_RANGE'],
    problem: (settings) =>
      problemOfRegions(regionsOf(settings), {
        home: homeOf(settings),
        port: settings.HOWDAH_PORT,
        portRange: settings.HOWDAH_PORT_RANGE,
      }),
  },
  {
    of: ['HOWDAH_TLS_CERT', 'HOWDAH_TLS_KEY'],
    problem: ({ HOWDAH_TLS_CERT: certificate, HOWDAH_TLS_KEY: key }) =>
      (certificate === undefined) === (key === undefined)
        ? null
        : `${certificate === undefined ? 'HOWDAH_TLS_CERT' : 'HOWDAH_TLS_KEY'}: missing; ` +
          'set it too: a certificate and its key go together',
  },
  {
    of: ['HOWDAH_TLS', 'HOWDAH_TLS_CERT', 'HOWDAH_TLS_KEY'],
    problem: ({ HOWDAH_TLS: mode, HOWDAH_TLS_CERT: certificate, HOWDAH_TLS_KEY: key }) =>
      mode === 'off' && certificate !== undefined && key !== undefined
        ? 'HOWDAH_TLS: found off together with HOWDAH_TLS_CERT; remove one of them'
        : null,
  },
  {
    of: ['HOWDAH_LOCAL_REGION', 'HOWDAH_DATABASE_URL', 'HOWDAH_REGIONS'],
    problem: ({
      HOWDAH_LOCAL_REGION: local,
      HOWDAH_DATABASE_URL: url,
      HOWDAH_REGIONS: regions,
    }) => {
      if (local === 'yes') return null;
      if (url === undefined)
        return 'HOWDAH_LOCAL_REGION: found no without HOWDAH_DATABASE_URL; set it too';
      return regions.length === 0
        ? null
        : 'HOWDAH_LOCAL_REGION: found no together with HOWDAH_REGIONS; remove one of them';
    },
  },
];

/**
 * @param env the environment; variables that begin with HOWDAH_ and are no setting are refused
 * @param flags values of command line flags by setting name; they win over the environment
 * @throws ConfigError with everything that is wrong, a line for each problem
 */
export function readConfig(env: NodeJS.ProcessEnv, flags: Flags = {}): Config {
  const { settings, problems } = readSettings(env, flags);
  const all = [...unknownVariables(env), ...problems];
  if (all.length > 0) throw new ConfigError(all.join('\n'));
  return configOf(settings);
}

function unknownVariables(env: NodeJS.ProcessEnv): string[] {
  const unknown = Object.keys(env).filter(
    (key) => key.startsWith('HOWDAH_') && !isSettingName(key) && !LAUNCHER_VARIABLES.includes(key),
  );
  if (unknown.length === 0) return [];
  const known = listSettings().map(({ name }) => name);
  return [
    `${unknown.join(', ')}: no such setting; correct the name or unset it; ` +
      `known are ${known.join(', ')}`,
  ];
}

/** The settings, with the default in place of a value that is wrong, and all that is wrong. */
function readSettings(
  env: NodeJS.ProcessEnv,
  flags: Flags,
): { settings: Settings; problems: string[] } {
  const values: Record<string, unknown> = {};
  const wrong = new Map<SettingName, string>();
  for (const { name } of listSettings()) {
    const text = flags[name] ?? (env[name] === '' ? undefined : env[name]);
    if (text === undefined) continue;
    const parsed = parseSetting(name, text);
    if (parsed.wrong.length === 0) values[name] = parsed.value;
    else wrong.set(name, refusal(name, parsed.wrong, flags[name] !== undefined));
  }
  const settings: unknown = Default(SETTINGS, values);
  if (!Check(SETTINGS, settings)) throw new Error('a default of a setting is not allowed');
  const mismatches = RULES.filter(({ of }) => !of.some((name) => wrong.has(name))).flatMap(
    ({ problem }) => problem(settings) ?? [],
  );
  return { settings, problems: [...wrong.values(), ...mismatches] };
}

/** Names the value found, the values allowed, and the spelling in the place it came from. */
function refusal(name: SettingName, found: readonly string[], isFlag: boolean): string {
  const { flag, allowed, example, isSecret } = describeSetting(name);
  const shown = isSecret
    ? 'a value that is not shown, as it may contain a password'
    : found.map((part) => JSON.stringify(part)).join(', ');
  const sample = isFlag ? `${flag} ${example}` : `${name}=${example}`;
  return `${name}: found ${shown}; allowed: ${allowed}; for example ${sample}`;
}

/** Units become milliseconds, and what depends on other settings is decided here. */
function configOf(settings: Settings): Config {
  const host = settings.HOWDAH_HOST;
  return Object.freeze({
    home: homeOf(settings),
    host,
    port: settings.HOWDAH_PORT,
    portRange: Object.freeze(settings.HOWDAH_PORT_RANGE),
    regions: Object.freeze(regionsOf(settings)),
    regionAliases: Object.freeze(settings.HOWDAH_REGION_ALIASES),
    publicHost: settings.HOWDAH_PUBLIC_HOST ?? (isWildcard(host) ? 'localhost' : host),
    spares: settings.HOWDAH_SPARES,
    boundsCpu: settings.HOWDAH_CPU_BOUND === 'size',
    backups: Object.freeze({
      windowMs: settings.HOWDAH_BACKUP_DAYS * DAY_MS,
      snapshotEveryMs: settings.HOWDAH_SNAPSHOT_HOURS * HOUR_MS,
      verifyEveryMs: settings.HOWDAH_VERIFY_HOURS * HOUR_MS,
    }),
    maintenanceWindow: parseMaintenanceWindow(settings.HOWDAH_MAINTENANCE_WINDOW ?? ''),
    heartbeatMs: settings.HOWDAH_HEARTBEAT_MS,
    failover: Object.freeze({
      cooldownMs: settings.HOWDAH_FAILOVER_COOLDOWN_SECONDS * SECOND_MS,
      lagLimitBytes: settings.HOWDAH_FAILOVER_LAG_BYTES,
    }),
    readLagLimit: Object.freeze({
      bytes: settings.HOWDAH_READ_LAG_BYTES,
      seconds: settings.HOWDAH_READ_LAG_SECONDS,
    }),
    restoreWindowMs: settings.HOWDAH_RESTORE_HOURS * HOUR_MS,
    historyMs: settings.HOWDAH_HISTORY_DAYS * DAY_MS,
    webhookNetworks: Object.freeze(settings.HOWDAH_WEBHOOK_NETWORKS),
    credentialPrograms: Object.freeze(settings.HOWDAH_CREDENTIAL_PROGRAMS),
    databaseUrl: settings.HOWDAH_DATABASE_URL ?? null,
    tls: Object.freeze(tlsOf(settings)),
    trustedProxies: Object.freeze(settings.HOWDAH_TRUSTED_PROXIES),
    apiHosts: Object.freeze(settings.HOWDAH_API_HOSTS),
    connectionsPerAddress: settings.HOWDAH_CONNECTIONS_PER_ADDRESS,
    failedKeysPerMinute: settings.HOWDAH_FAILED_KEYS_PER_MINUTE,
    changesPerDay: settings.HOWDAH_CHANGES_PER_DAY,
    uidRange: Object.freeze(settings.HOWDAH_UID_RANGE),
    singleProject: settings.HOWDAH_SINGLE_PROJECT === 'yes',
    simulatedRegion: settings.HOWDAH_SIMULATED_REGION === 'yes',
    localRegion: settings.HOWDAH_LOCAL_REGION === 'yes',
  });
}

/** Resolved, an empty text would be the current directory: the schema refuses it. */
function homeOf({ HOWDAH_HOME: home }: Settings): string {
  return resolve(home.replace(/^~(?=\/|$)/, homedir()));
}

function regionsOf({ HOWDAH_REGIONS: texts }: Settings): FurtherRegion[] {
  return texts.flatMap((text) => parseRegion(text) ?? []);
}

/** Whether an address means every address of the machine. */
export function isWildcard(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

/** Whether an address can be reached from this machine only. */
function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}

/** Whether the API can be reached from other machines without TLS, because the settings say so. */
export function isInTheClear({ host, tls }: Pick<Config, 'host' | 'tls'>): boolean {
  return !tls.on && !isLoopback(host);
}

/** Keys leave this machine unencrypted only if a setting says so. */
function tlsOf(settings: Settings): Config['tls'] {
  const {
    HOWDAH_HOST: host,
    HOWDAH_TLS: mode,
    HOWDAH_TLS_CERT: certificate,
    HOWDAH_TLS_KEY: key,
  } = settings;
  const files =
    certificate === undefined || key === undefined
      ? null
      : { certificate: resolve(certificate), key: resolve(key) };
  return { on: mode === 'on' || (mode === 'auto' && (files !== null || !isLoopback(host))), files };
}

// Whether the regions of a machine fit together: codes, directories and ports.

/** The settings of the first region, which further ones must not share. */
type First = Readonly<{ home: string; port: number; portRange: readonly [number, number] }>;

/** @returns a line for each problem, all of which stop a start; null: there is none */
function problemOfRegions(regions: readonly FurtherRegion[], first: First): string | null {
  const problems = regions.flatMap((region, index) => {
    const others = regions.slice(0, index);
    return [
      ...problemsOfCode(region, others),
      ...problemsOfDirectory(region, others, first.home),
      ...problemsOfPorts(region, others, first),
    ];
  });
  return problems.length === 0
    ? null
    : problems.map((problem) => `HOWDAH_REGIONS: ${problem}`).join('\n');
}

function problemsOfCode({ code }: FurtherRegion, others: readonly FurtherRegion[]): string[] {
  if (RESERVED_REGIONS.includes(code))
    return [`found the code ${code}, which is taken; choose another one`];
  return others.some((other) => other.code === code)
    ? [`found the code ${code} twice; choose another one for one of the regions`]
    : [];
}

function problemsOfDirectory(
  { code, directory }: FurtherRegion,
  others: readonly FurtherRegion[],
  home: string,
): string[] {
  const places = [
    { name: 'HOWDAH_HOME', path: home },
    ...others.map((other) => ({ name: other.code, path: other.directory })),
  ];
  return places
    .filter(({ path }) => isWithin(directory, path) || isWithin(path, directory))
    .map(
      ({ name, path }) =>
        `${directory} of ${code} and ${path} of ${name} are not apart; ` +
        'choose a directory outside of the other',
    );
}

/** Whether a path is that of a directory, or below it. */
function isWithin(path: string, directory: string): boolean {
  const way = relative(directory, path);
  return way !== '..' && !way.startsWith('../') && !isAbsolute(way);
}

function problemsOfPorts(
  { code, portRange: [from, to] }: FurtherRegion,
  others: readonly FurtherRegion[],
  { port, portRange }: First,
): string[] {
  const taken = [
    { name: 'HOWDAH_PORT', range: [port, port] as const },
    { name: 'HOWDAH_PORT_RANGE', range: portRange },
    ...others.map((other) => ({ name: other.code, range: other.portRange })),
  ];
  return taken
    .filter(({ range: [first, last] }) => from <= last && first <= to)
    .map(
      ({ name, range }) =>
        `the ports ${from}-${to} of ${code} overlap with ${[...new Set(range)].join('-')} of ` +
        `${name}; change one of them`,
    );
}
