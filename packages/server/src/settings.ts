/**
 * The settings of an installation, as one schema.
 *
 * `config.ts` parses the environment by it. `npm run generate` writes the options of `howdah up`
 * and the table in docs/configuration.md from it.
 */
import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { Type, type Static, type TSchema } from 'typebox';
import { Check } from 'typebox/value';

/**
 * The regions of Tiger Cloud by their codes in its API.
 * Source: https://www.tigerdata.com/docs/learn/tiger-cloud/regions; codes of Azure begin with az-.
 */
const TIGER_REGIONS = [
  'ap-northeast-1',
  'ap-south-1',
  'ap-southeast-1',
  'ap-southeast-2',
  'ca-central-1',
  'eu-central-1',
  'eu-central-2',
  'eu-west-1',
  'eu-west-2',
  'sa-east-1',
  'us-east-1',
  'us-east-2',
  'us-west-2',
  'az-eastus2',
  'az-westeurope',
] as const;

// The window in which minor versions of PostgreSQL are applied by restarts.

/** `day`: 0 for Sunday; null: each day. Minutes of the day; a window may end on the next day. */
export type MaintenanceWindow = Readonly<{ day: number | null; from: number; to: number }>;

const DAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const DAY_MINUTES = 24 * 60;

/** Reads `Sun 03:00-05:00` or `daily 03:00-05:00`; null: it is none. */
export function parseMaintenanceWindow(text: string): MaintenanceWindow | null {
  const [, day = '', from = '', to = ''] =
    /^(daily|[A-Z][a-z]{2}) ([0-9]{2}:[0-9]{2})-([0-9]{2}:[0-9]{2})$/.exec(text) ?? [];
  const [first, last] = [minuteOf(from), minuteOf(to)];
  if (first === null || last === null || first === last || first === DAY_MINUTES) return null;
  if (day === 'daily') return { day: null, from: first, to: last };
  return DAYS.includes(day) ? { day: DAYS.indexOf(day), from: first, to: last } : null;
}

function minuteOf(text: string): number | null {
  const [hours = NaN, minutes = NaN] = text.split(':').map(Number);
  const minute = hours * 60 + minutes;
  return minutes < 60 && minute <= DAY_MINUTES ? minute : null;
}

/** The setting HOWDAH_MAINTENANCE_WINDOW. */
const MaintenanceWindowText = Type.Refine(
  Type.String({
    unset: 'none',
    example: 'Sun 03:00-05:00',
    allowed: 'a day (Sun, Mon, … or daily) and two times of the local clock, HH:MM-HH:MM',
    description:
      'when services are restarted, one after the other, ' +
      'whose PostgreSQL has a newer minor version',
  }),
  (text: string) => parseMaintenanceWindow(text) !== null,
);

/** Whether a moment is in the window, by the clock and time zone of this machine. */
export function isWithin({ day, from, to }: MaintenanceWindow, moment: Date): boolean {
  const minute = moment.getHours() * 60 + moment.getMinutes();
  const isOn = (weekday: number): boolean => day === null || day === (weekday + 7) % 7;
  const today = moment.getDay();
  if (from < to) return isOn(today) && minute >= from && minute < to;
  return (isOn(today) && minute >= from) || (isOn(today - 1) && minute < to);
}

/**
 * None of Debian's adduser (1000-59999), systemd's DynamicUser (61184-65519) or subordinate users
 * (from 100000 on).
 */
export const DEFAULT_UID_RANGE = [70_000, 89_999] as const;
/** Debian policy, section 9.2.2: ids below belong to the system. */
const FIRST_UID = 1000;
/** The last but one that Linux has. */
const LAST_UID = 2 ** 32 - 3;
/** Debian policy, section 9.2.2: 65534 is nobody, and 65535 must not be used. */
const NOBODY_UID = 65_534;

/** Ports below belong to the system. */
const FIRST_PORT = 1024;
const LAST_PORT = 65_535;

/** The code of the region in HOWDAH_HOME. */
export const LOCAL_REGION = 'local';
/** Codes that no further region can have: `simulated` is for an engine without databases. */
export const RESERVED_REGIONS: readonly string[] = [LOCAL_REGION, 'simulated'];

const NETWORKS = 'addresses and networks, separated by commas, or none';

/**
 * Keywords of our own: `allowed` says what a value must be, where type and bounds do not;
 * `unset` says what happens without a value, where there is no `default`;
 * `example` is shown with an error, where there is no `default`;
 * `secret` keeps the value out of messages.
 */
export const SETTINGS = Type.Object({
  HOWDAH_HOME: Type.String({
    default: '~/.howdah',
    minLength: 1,
    allowed: 'the path of a directory',
    description: 'where the installation keeps its files',
  }),
  HOWDAH_HOST: Type.Refine(
    Type.String({
      default: '127.0.0.1',
      allowed: 'an IP address of this machine, 0.0.0.0, :: or localhost',
      description: 'address that the API and the databases listen on; 0.0.0.0 for all',
    }),
    (text: string) => text === 'localhost' || isIP(text) !== 0,
  ),
  HOWDAH_PORT: Type.Integer({
    default: 8080,
    minimum: 1,
    maximum: LAST_PORT,
    description: 'port of the API',
  }),
  HOWDAH_PORT_RANGE: Type.Refine(
    Type.Tuple([Type.Integer({ minimum: FIRST_PORT }), Type.Integer({ maximum: LAST_PORT })], {
      default: [20_000, 29_999],
      allowed: 'FIRST-LAST with 1024 ≤ FIRST ≤ LAST ≤ 65535',
      description: 'ports for databases',
    }),
    isRange,
  ),
  HOWDAH_REGIONS: Type.Array(
    Type.Refine(Type.String(), (text: string) => parseRegion(text) !== null),
    {
      default: [],
      example: 'nvme=/mnt/nvme/howdah:15000-19999',
      allowed:
        'CODE=DIRECTORY:FIRST-LAST, separated by commas, or none; CODE of a-z, 0-9 and -, ' +
        'DIRECTORY as absolute path, 1024 ≤ FIRST ≤ LAST ≤ 65535',
      description:
        'further regions on this machine, such as for a second disk: ' +
        'each has a directory and ports for its databases',
    },
  ),
  HOWDAH_REGION_ALIASES: Type.Array(
    Type.Refine(Type.String(), (text: string) => /^[a-z][a-z0-9-]{0,31}$/.test(text)),
    {
      default: [...TIGER_REGIONS],
      allowed: 'region codes of a-z, 0-9 and -, separated by commas, or none',
      description:
        'further names of the first region, which its services and VPCs show as they were asked ' +
        'for; the codes of regions here keep their meaning',
    },
  ),
  HOWDAH_PUBLIC_HOST: Type.Optional(
    Type.Refine(
      Type.String({
        unset: 'HOWDAH_HOST, or localhost',
        example: 'db.example.com',
        allowed: 'a host name or an IP address, without port or scheme',
        description: 'host name in endpoints and certificates',
      }),
      isHostName,
    ),
  ),
  HOWDAH_SPARES: Type.Integer({
    default: 1,
    minimum: 0,
    maximum: 16,
    description: 'running servers that are kept for the next create',
  }),
  HOWDAH_CPU_BOUND: Type.Enum(['none', 'size'], {
    default: 'none',
    example: 'size',
    description:
      'how much CPU a service may use that does not say it itself; none: idle processors beyond ' +
      'its size; size: no more than its size',
  }),
  HOWDAH_BACKUP_DAYS: Type.Number({
    default: 3,
    minimum: 0.001,
    maximum: 3650,
    description: 'days within which a service can be forked at a point in time',
  }),
  HOWDAH_SNAPSHOT_HOURS: Type.Number({
    default: 24,
    minimum: 0.001,
    maximum: 8760,
    description: 'hours between snapshots of a service that is written to',
  }),
  HOWDAH_VERIFY_HOURS: Type.Number({
    default: 24,
    minimum: 0.001,
    maximum: 8760,
    description: 'hours between verifications of the newest backup of a running service',
  }),
  HOWDAH_RESTORE_HOURS: Type.Number({
    default: 24,
    minimum: 0,
    maximum: 87_600,
    description: 'hours within which a deleted service can be restored; 0: it cannot',
  }),
  HOWDAH_MAINTENANCE_WINDOW: Type.Optional(MaintenanceWindowText),
  HOWDAH_HISTORY_DAYS: Type.Number({
    default: 365,
    minimum: 0.001,
    maximum: 36_500,
    description: 'days for which ended operations and audit entries are kept',
  }),
  HOWDAH_HEARTBEAT_MS: Type.Integer({
    default: 1000,
    minimum: 100,
    maximum: 60_000,
    description:
      'milliseconds after which a primary that a signal has stopped is killed and replaced, ' +
      'if its service has replicas',
  }),
  HOWDAH_FAILOVER_COOLDOWN_SECONDS: Type.Integer({
    default: 30,
    minimum: 0,
    maximum: 86_400,
    description: 'seconds after a failover in which a primary that dies is restarted in place',
  }),
  HOWDAH_FAILOVER_LAG_BYTES: Type.Integer({
    default: 1_048_576,
    minimum: 0,
    maximum: 999_999_999,
    description: 'bytes of WAL that an asynchronous replica may lack and still take over by itself',
  }),
  HOWDAH_TLS: Type.Enum(['auto', 'on', 'off'], {
    default: 'auto',
    description:
      'whether the API speaks TLS; auto: if other machines can reach HOWDAH_HOST, ' +
      'or with HOWDAH_TLS_CERT; off: for a proxy that does',
  }),
  HOWDAH_TLS_CERT: Type.Optional(
    Type.String({
      minLength: 1,
      unset: 'one of our own CA',
      example: '/etc/ssl/howdah.pem',
      allowed: 'the path of a file',
      description: 'PEM file with the certificate of the API and its chain',
    }),
  ),
  HOWDAH_TLS_KEY: Type.Optional(
    Type.String({
      minLength: 1,
      unset: 'one of our own CA',
      example: '/etc/ssl/howdah.key',
      allowed: 'the path of a file',
      description: 'PEM file with the key of that certificate',
    }),
  ),
  HOWDAH_TRUSTED_PROXIES: Type.Array(Type.Refine(Type.String(), isNetwork), {
    default: [],
    example: '192.0.2.7,10.0.0.0/8',
    allowed: NETWORKS,
    description: 'proxies whose X-Forwarded-For is trusted',
  }),
  HOWDAH_API_HOSTS: Type.Array(Type.Refine(Type.String(), isHostPattern), {
    default: [],
    example: 'db.example.com,*.example.org',
    allowed: 'host names and IP addresses, without port or scheme, separated by commas, or none',
    description:
      'further names under which requests without a key reach the API, ' +
      'such as those of browsers through a proxy; `*.` matches one label',
  }),
  HOWDAH_CONNECTIONS_PER_ADDRESS: Type.Integer({
    default: 512,
    minimum: 1,
    maximum: 1_000_000,
    description: 'open connections to the API from one address; no limit for trusted proxies',
  }),
  HOWDAH_CHANGES_PER_DAY: Type.Integer({
    default: 20_000,
    minimum: 1,
    maximum: 999_999_999,
    description:
      'accepted changes of a project within a day; ' +
      'further ones are answered with 429, reads never are',
  }),
  HOWDAH_FAILED_KEYS_PER_MINUTE: Type.Integer({
    default: 100,
    minimum: 0,
    maximum: 1_000_000,
    description:
      'wrong keys from one address within a minute; ' +
      'further ones are answered with 429, valid keys never are',
  }),
  HOWDAH_WEBHOOK_NETWORKS: Type.Array(Type.Refine(Type.String(), isNetwork), {
    default: [],
    example: '127.0.0.0/8,10.0.0.0/8',
    allowed: NETWORKS,
    description: 'private networks that webhooks, exporters and alerts may send to',
  }),
  HOWDAH_CREDENTIAL_PROGRAMS: Type.Array(
    Type.Refine(Type.String(), (text: string) => /^\/[^,]+$/.test(text)),
    {
      default: [],
      example: '/usr/local/bin/aws',
      allowed: 'absolute paths of programs, separated by commas, or none',
      description:
        'programs that kubeconfigs of regions may run on this machine for credentials of their ' +
        'clusters, with any arguments',
    },
  ),
  HOWDAH_READ_LAG_BYTES: Type.Integer({
    default: 134_217_728,
    minimum: 0,
    maximum: 999_999_999,
    description:
      'bytes of WAL that a replica-set node may not have replayed and still get connections',
  }),
  HOWDAH_READ_LAG_SECONDS: Type.Number({
    default: 60,
    minimum: 0,
    maximum: 86_400,
    description: 'seconds that the data of a replica-set node may be old while it gets connections',
  }),
  HOWDAH_UID_RANGE: Type.Refine(
    Type.Tuple([Type.Integer({ minimum: FIRST_UID }), Type.Integer({ maximum: LAST_UID })], {
      default: [...DEFAULT_UID_RANGE],
      allowed: `FIRST-LAST with ${FIRST_UID} ≤ FIRST ≤ LAST ≤ ${LAST_UID}, without 65534 and 65535`,
      description:
        'operating system users for services, if Howdah runs as root; ' +
        'they need no entries in /etc/passwd',
    }),
    ([first, last]: [number, number]) =>
      isRange([first, last]) && (first > NOBODY_UID + 1 || last < NOBODY_UID),
  ),
  HOWDAH_SINGLE_PROJECT: Type.Enum(['yes', 'no'], {
    default: 'no',
    description:
      'whether services of a second project are refused where services cannot ' +
      'have users of their own',
  }),
  HOWDAH_SIMULATED_REGION: Type.Enum(['yes', 'no'], {
    default: 'no',
    description:
      'whether there is one more region, named simulated, whose services run no PostgreSQL, ' +
      'for tests of programs that use the API',
  }),
  HOWDAH_LOCAL_REGION: Type.Enum(['yes', 'no'], {
    default: 'yes',
    description:
      'whether this machine runs services; no: in a Kubernetes cluster, with other control planes',
  }),
  HOWDAH_DATABASE_URL: Type.Optional(
    Type.Refine(
      Type.String({
        unset: 'the one that HOWDAH_HOME records; at first a PostgreSQL of our own',
        example: 'postgres://user:password@host:5432/database',
        allowed: 'a URL of the form postgres://user:password@host:port/database',
        secret: true,
        description: 'the metadata database, where the control plane keeps its own data',
      }),
      (text: string) => /^postgres(ql)?:\/\//.test(text) && URL.canParse(text),
    ),
  ),
});
export type Settings = Readonly<Static<typeof SETTINGS>>;
export type SettingName = keyof typeof SETTINGS.properties;

/** A setting in words, for messages, `--help` and documents. */
export type SettingText = Readonly<{
  name: SettingName;
  flag: string;
  /** The value without the setting, or what happens then. */
  default: string;
  allowed: string;
  meaning: string;
  example: string;
  isSecret: boolean;
}>;

/** Every setting in words, in the order of the schema. */
export function listSettings(): SettingText[] {
  return Object.keys(SETTINGS.properties).filter(isSettingName).map(describeSetting);
}

export function isSettingName(name: string): name is SettingName {
  return Object.hasOwn(SETTINGS.properties, name);
}

export function describeSetting(name: SettingName): SettingText {
  const schema: TSchema = SETTINGS.properties[name];
  const fallback = keyword(schema, 'default');
  const byDefault = fallback === undefined ? wordsAt(schema, 'unset') : textOf(fallback);
  return {
    name,
    flag: `--${name.replace('HOWDAH_', '').toLowerCase().replaceAll('_', '-')}`,
    default: byDefault,
    allowed: allowedBy(schema),
    meaning: wordsAt(schema, 'description'),
    example: wordsAt(schema, 'example') || byDefault,
    isSecret: keyword(schema, 'secret') === true,
  };
}

function allowedBy(schema: TSchema): string {
  const [from, to] = [keyword(schema, 'minimum'), keyword(schema, 'maximum')];
  if (Type.IsInteger(schema)) return `a whole number from ${String(from)} to ${String(to)}`;
  if (Type.IsNumber(schema)) return `a number from ${String(from)} to ${String(to)}`;
  if (Type.IsEnum(schema)) return schema.enum.join(', ');
  return wordsAt(schema, 'allowed');
}

/** @returns the text that `parseSetting` turns into this value */
function textOf(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  if (value.length === 0) return 'none';
  return value.join(typeof value[0] === 'number' ? '-' : ',');
}

function keyword(schema: TSchema, key: string): unknown {
  return Reflect.get(schema, key);
}

function wordsAt(schema: TSchema, key: string): string {
  const words = keyword(schema, key);
  return typeof words === 'string' ? words : '';
}

/** A value, or the parts of the text that are wrong. */
type Parsed = Readonly<{ value: unknown; wrong: readonly string[] }>;

/** Turns the text of a variable or flag into the value of a setting. */
export function parseSetting(name: SettingName, text: string): Parsed {
  const schema: TSchema = SETTINGS.properties[name];
  const value = valueOf(schema, text);
  if (Check(schema, value)) return { value, wrong: [] };
  if (!Type.IsArray(schema) || !Array.isArray(value)) return { value, wrong: [text] };
  const parts: unknown[] = value;
  return { value, wrong: parts.filter((part) => !Check(schema.items, part)).map(String) };
}

/** @returns the text itself where it has not the form of the type: the check refuses it */
function valueOf(schema: TSchema, text: string): unknown {
  if (Type.IsInteger(schema)) return /^[0-9]{1,9}$/.test(text) ? Number(text) : text;
  if (Type.IsNumber(schema)) return /^[0-9]{1,6}(\.[0-9]{1,6})?$/.test(text) ? Number(text) : text;
  if (Type.IsTuple(schema)) {
    const [, first, last] = /^([0-9]{1,10})-([0-9]{1,10})$/.exec(text) ?? [];
    return first === undefined || last === undefined ? text : [Number(first), Number(last)];
  }
  if (!Type.IsArray(schema)) return text;
  return text === 'none' ? [] : text.split(',').map((part) => part.trim());
}

/** A further region on this machine. */
export type FurtherRegion = Readonly<{
  code: string;
  /** Where its data is, as HOWDAH_HOME holds that of the first region. */
  directory: string;
  /** First and last port for its databases. */
  portRange: readonly [number, number];
}>;

/** Reads an entry of HOWDAH_REGIONS; null: it is none. */
export function parseRegion(text: string): FurtherRegion | null {
  const [, code, directory, from, to] =
    /^([a-z][a-z0-9-]{0,31})=(\/.*):([0-9]{1,5})-([0-9]{1,5})$/.exec(text) ?? [];
  if (code === undefined || directory === undefined) return null;
  const [first, last] = [Number(from), Number(to)];
  if (first < FIRST_PORT || last > LAST_PORT || first > last) return null;
  return { code, directory: resolve(directory), portRange: [first, last] };
}

function isRange([first, last]: [number, number]): boolean {
  return first <= last;
}

function isHostName(text: string): boolean {
  return (
    isIP(text) !== 0 ||
    /^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))*$/i.test(text)
  );
}

function isHostPattern(text: string): boolean {
  return isHostName(text.replace(/^\*\./, ''));
}

function isNetwork(text: string): boolean {
  const [address = '', bits, more] = text.split('/');
  const family = isIP(address);
  if (family === 0 || more !== undefined) return false;
  if (bits === undefined) return true;
  return /^[0-9]{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128);
}
