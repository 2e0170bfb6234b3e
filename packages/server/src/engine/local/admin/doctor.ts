/** `howdah doctor`: what the machine has, what is missing, and the command that adds it. */
import { statfs, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ADDONS_OF_TYPE, OLDEST_PG_VERSION, SERVICE_TYPES, type Finding } from '@howdah/contract';
import { messageOf } from '@howdah/contract/thrown';
import type { ClientConfig } from 'pg';
import { lookUpPgBackRest, PGBACKREST_REMEDY } from '../../../repository/pgbackrest.ts';
import { offMachineOf } from '../capabilities.ts';
import { CLONE_COST, probeCloneMethod } from '../host/clone.ts';
import {
  fileSystemOf,
  findImage,
  gigabytes,
  imagePaths,
  missingBytes,
  type ImageFacts,
  type ImagePaths,
} from '../host/image.ts';
import { SMALLEST_STORE_BYTES } from '../host/image-create.ts';
import {
  capabilitiesFinding,
  dataDirectory,
  isEgressClosed,
  isolationNote,
  probeNamespaces,
  SERVER_USER,
  whyNotIsolated,
  measureCapacity,
} from '../host/machine.ts';
import { releasesBehind } from '../../../domain/postgres/minor-releases.ts';
import { probeEgress } from '../host/egress.ts';
import { RESERVE_AGAIN_PERCENT, RESERVE_RELEASE_PERCENT } from '../../../domain/disk.ts';
import type { DiskUsage } from '../../engine.ts';
import { diskUsage, heldReserve, reserveBytes } from '../host/reserve.ts';
import { findProgram, PROGRAMS, type ProgramName } from '../host/daemon.ts';
import { installationPlaces } from '../host/layout.ts';
import {
  EDITION_NOTE,
  findInstallations,
  installationFor,
  missingFor,
  type Installation,
} from '../postgres/installations.ts';
import { LOGIN_TRIGGERS_SINCE } from '../../postgres/contents/login-guard.ts';
import { untrustedControls } from '../postgres/extension-files.ts';
import { findLeftovers } from './leftovers.ts';
import { dataDirectories, findSites } from './sites.ts';
import { readDiskRate } from '../host/disk-rate.ts';
import { foreseeLimits, limitsNote } from '../host/limits.ts';
import { readRegionPlaces } from '../../../installation.ts';
import { DEFAULT_UID_RANGE, LOCAL_REGION } from '../../../settings.ts';
import type { UidRange } from '../host/users.ts';
import { probeNetworks } from '../network/networks.ts';
import { ownCapabilities } from '../../../lib/kernel-capabilities.ts';
import { exists, isErrno } from '../../../lib/processes.ts';
import { findSystemUser } from '../../../lib/system-users.ts';
import { foreseeSandbox, type Namespaces } from '../host/sandbox.ts';
import { runningPostmasters } from '../postgres/server.ts';
import {
  describeCapacity,
  overcommitment,
  type Committed,
} from '../../../domain/service/capacity.ts';
import { findMetadataPlace } from '../../../metadata-record.ts';
import { readCommittedOf } from '../../../store/committed-sizes.ts';
import { storeConnection } from '../postgres/store-instance.ts';

/** @param rate bytes a second; null: nothing has run yet */
const diskNote = (rate: number | null): string =>
  rate === null ? '' : `; the disk wrote ${Math.round(rate / 1e6)} MB a second at the first start`;

/** Changes nothing, but for a probe of the file system that is gone when it returns. */
export async function doctor(
  home: string,
  uidRange: UidRange = DEFAULT_UID_RANGE,
  boundsCpu = false,
): Promise<Finding[]> {
  const data = await dataDirectory(home);
  const [namespaces, limits] = await Promise.all([
    probeNamespaces(),
    foreseeLimits('howdah', data),
  ]);
  const { usable, tooOld } = await findInstallations(installationPlaces(data), false);
  return [
    { what: 'Node', state: 'ok', found: process.version },
    await privileges(),
    ...(process.getuid?.() === 0 ? [capabilitiesFinding(ownCapabilities())] : []),
    namespaces === 'none'
      ? {
          what: 'PID namespaces',
          state: 'note',
          found: 'not allowed here: a busy backend may outlive its killed server for a while',
        }
      : { what: 'PID namespaces', state: 'ok', found: `one per server, ${namespaces}` },
    await mountNamespaces(namespaces),
    await isolation(namespaces, uidRange),
    ...(await disks(home)),
    await capacityFinding(home),
    {
      what: 'size limits',
      state: limits.kind === 'none' ? 'note' : 'ok',
      found: `${limitsNote(limits, boundsCpu)}${diskNote(await readDiskRate(data))}`,
    },
    ...usable.map(({ version, source, bin, extensions, timescaledb }): Finding => ({
      what: `PostgreSQL ${version}`,
      state: 'ok',
      found:
        `${source}, ${bin}; ` +
        `extensions: ${extensions.join(', ') || 'none of timescaledb, vector'}` +
        (timescaledb === null ? '' : ` (TimescaleDB: ${EDITION_NOTE[timescaledb]})`),
    })),
    ...usable.flatMap((one) => minorVersion(one, new Date())),
    ...usable.map(readOnlySessions),
    ...(await Promise.all(usable.map((one) => extensionsEverywhere(one, namespaces)))).flat(),
    ...tooOld.map(({ version, bin }): Finding => ({
      what: `PostgreSQL ${version}`,
      state: 'note',
      found:
        `${bin}: not used; before ${OLDEST_PG_VERSION} a role that may create roles can make ` +
        "itself one that reads the server's files",
    })),
    ...SERVICE_TYPES.map((type): Finding => {
      const installation = installationFor(usable, ADDONS_OF_TYPE[type], null);
      return installation === null
        ? {
            what: `type ${type}`,
            state: 'missing',
            found: 'cannot be had',
            remedy: missingFor(usable, ADDONS_OF_TYPE[type], null),
          }
        : {
            what: `type ${type}`,
            state: 'ok',
            found: `on PostgreSQL ${installation.version} (${installation.source})`,
          };
    }),
    ...(await replacedBinaries(usable, await dataDirectories(home))),
    await program('pgbouncer'),
    await program('haproxy'),
    await pgBackRest(usable),
    await egress(),
    await vpcs(),
    ...(await findLeftovers(await dataDirectories(home), uidRange)).map(
      ({ found, remedy }): Finding => ({
        what: 'left over',
        state: 'note',
        found,
        remedy,
      }),
    ),
  ];
}

/** Whether newer minor releases of an installed PostgreSQL are out, by their schedule. */
export function minorVersion(
  { version, major, source }: Pick<Installation, 'version' | 'major' | 'source'>,
  now: Date,
): Finding[] {
  const behind = releasesBehind(version, now);
  if (behind === null) return [];
  const { releases, since } = behind;
  const newer = releases === 1 ? 'a minor release is' : `${releases} minor releases are`;
  return [
    {
      what: `PostgreSQL ${version}`,
      state: 'note',
      found: `at least ${newer} missing, since ${since}; they close security holes`,
      remedy: newerMinor(source, `apt-get update && apt-get install postgresql-${major}`),
    },
  ];
}

/** @param packages the command that installs or updates those of the system */
function newerMinor(source: Installation['source'], packages: string): string {
  switch (source) {
    case 'system':
      return `${packages}; a maintenance window (HOWDAH_MAINTENANCE_WINDOW) \
restarts services on it`;
    case 'linked':
      return 'link a newer installation in its place, then restart Howdah';
    case 'npm':
      return (
        `as root on Debian 13, or with the packages of PGDG: ${packages}; ` +
        "the system's PostgreSQL comes before npm's"
      );
  }
}

/** Whether a client that asks for a session that cannot write gets one. */
function readOnlySessions({ version, major, source, readOnly }: Installation): Finding {
  const what = `read-only sessions on PostgreSQL ${version}`;
  if (readOnly.path !== null || readOnly.missing === null)
    return { what, state: 'ok', found: 'enforced by a module that is compiled at the start' };
  return {
    what,
    state: 'note',
    found:
      major >= LOGIN_TRIGGERS_SINCE
        ? `refused: ${readOnly.missing}`
        : `accepted, and they can write: ${readOnly.missing}`,
    ...(source === 'npm'
      ? {}
      : {
          remedy:
            `as root: apt-get install postgresql-server-dev-${major} libc6-dev tcc patchelf ` +
            '(./howdah up in a clone needs less); then restart the services',
        }),
  };
}

/** Whether owners can create in each database what services begin with. */
async function extensionsEverywhere(
  { version, bin }: Installation,
  namespaces: Namespaces,
): Promise<Finding[]> {
  const controls = await untrustedControls(bin);
  if (controls.length === 0 || (await foreseeSandbox(namespaces)).way === 'mounts') return [];
  return [
    {
      what: `extensions of PostgreSQL ${version} in every database`,
      state: 'note',
      found:
        `${controls.map(({ name }) => name).join(', ')}: tsdbadmin can create it in no database, ` +
        'since there are no mount namespaces in which its control file is another one',
      remedy: `printf 'trusted = true\\n' | tee -a ${controls.map(({ path }) => path).join(' ')}`,
    },
  ];
}

async function mountNamespaces(namespaces: Namespaces): Promise<Finding> {
  const what = 'mount namespaces';
  const { way, note } = await foreseeSandbox(namespaces);
  if (way === 'mounts') return { what, state: 'ok', found: note };
  return {
    what,
    state: 'note',
    found: note,
    remedy: 'as root with CAP_SYS_ADMIN, servers get mount namespaces',
  };
}

async function privileges(): Promise<Finding> {
  const what = 'privileges';
  if (process.getuid?.() !== 0) {
    const remedy = 'as root, each service can run as a user of its own and limits can be enforced';
    return { what, state: 'note', found: 'not root: databases run as this user', remedy };
  }
  const user = await findSystemUser(SERVER_USER);
  return {
    what,
    state: 'ok',
    found:
      user === null
        ? `root; shared files belong to the user ${SERVER_USER}, whom the first start makes`
        : `root; shared files belong to the user ${user.name}`,
  };
}

/** Whether services are kept from each other. */
async function isolation(namespaces: Namespaces, range: UidRange): Promise<Finding> {
  const what = 'isolation';
  const [sandbox, egress] = await Promise.all([foreseeSandbox(namespaces), probeEgress()]);
  const why = await whyNotIsolated(namespaces, sandbox, range);
  const found = isolationNote(why, sandbox, egress);
  // Users of their own take mount namespaces: only connections are left.
  if (why === null) return { what, state: isEgressClosed(why, egress) ? 'ok' : 'note', found };
  const remedy =
    'give projects that do not trust each other installations of their own, ' +
    'or run Howdah as root; HOWDAH_SINGLE_PROJECT=yes refuses a second project';
  return { what, state: 'note', found, remedy };
}

/** The disk of each region; those of further regions are called by the region. */
async function disks(home: string): Promise<Finding[]> {
  const places = await readRegionPlaces(home);
  const found = await Promise.all(
    places.map(async ({ code, directory }) => {
      const paths = imagePaths(await dataDirectory(directory));
      const findings = [...(await disk(paths, code)), ...(await reserve(paths.data))];
      return code === LOCAL_REGION
        ? findings
        : findings.map((finding) => ({ ...finding, what: `${finding.what} of ${code}` }));
    }),
  );
  return found.flat();
}

/**
 * The cost of forks where the data is or will be, and whether the disk can hold all of the data
 * volume.
 */
async function disk(paths: ImagePaths, region: string): Promise<Finding[]> {
  const image = await findImage(paths);
  const store = image === null ? [] : [storeFinding(image)];
  const what = 'file system';
  if (image?.mounted === false) {
    return [
      {
        what,
        state: 'note',
        found: `${paths.data} is in the store ${image.path}, which is not mounted`,
        remedy: 'howdah up mounts it',
      },
      ...store,
    ];
  }
  const directory = await nearestDirectory(paths.data);
  const place = `${paths.data}, on ${await fileSystemOf(directory)}`;
  const method = await probeCloneMethod(directory).catch((error: unknown) => {
    if (isErrno(error, 'EACCES', 'EPERM', 'EROFS', 'ENOSPC')) return null;
    throw error;
  });
  if (method === null)
    return [
      {
        what,
        state: 'note',
        found:
          `${place}: the cost of forks is measured by a trial, ` +
          `and ${directory} cannot be written`,
      },
      ...store,
    ];
  return method === 'copy'
    ? [
        {
          what,
          state: 'note',
          found: `${place}: ${CLONE_COST.copy}`,
          remedy: await howToClone(directory, region),
        },
        ...store,
      ]
    : [{ what, state: 'ok', found: `${place}: ${CLONE_COST[method]}` }, ...store];
}

/** Whether the space for a full disk is held. Before the first start there is nothing to report. */
async function reserve(data: string): Promise<Finding[]> {
  if (!(await exists(data))) return [];
  return [reserveFinding(await diskUsage(data), await heldReserve(data))];
}

/** @param heldBytes what the reserve holds; 0: there is none */
export function reserveFinding(
  { totalBytes, usedPercent }: Pick<DiskUsage, 'totalBytes' | 'usedPercent'>,
  heldBytes: number,
): Finding {
  const what = 'reserve';
  const megabytes = (bytes: number) => `${Math.round(bytes / 1e6)} MB`;
  if (heldBytes > 0)
    return {
      what,
      state: 'ok',
      found:
        `present: ${megabytes(heldBytes)}, ` +
        `released when the disk is ${RESERVE_RELEASE_PERCENT} % full`,
    };
  return {
    what,
    state: 'note',
    found:
      `released, or never made: ${megabytes(reserveBytes(totalBytes))} are missing; ` +
      `the disk is ${Math.floor(usedPercent)} % full`,
    remedy:
      `make room on the disk: below ${RESERVE_AGAIN_PERCENT} % a running control ` +
      'plane makes it again',
  };
}

/** The command that makes a store of half of what is free. */
async function howToClone(directory: string, region: string): Promise<string> {
  const { bavail, bsize } = await statfs(directory);
  const sizeBytes = Math.max(
    Math.floor((bavail * bsize) / 2 / 1024 ** 3) * 1024 ** 3,
    SMALLEST_STORE_BYTES,
  );
  const where = region === LOCAL_REGION ? '' : ` --region ${region}`;
  return (
    `as root: howdah store create --size ${gigabytes(sizeBytes)}${where}, ` +
    'with the databases stopped (howdah down --databases); ' +
    'btrfs for forks, --fs xfs for many writes'
  );
}

function storeFinding(image: ImageFacts): Finding {
  const taken =
    `${image.path} takes ${gigabytes(image.diskBytes)} of the disk and may take ` +
    gigabytes(image.sizeBytes);
  const missing = missingBytes(image);
  if (missing === 0)
    return {
      what: 'store',
      state: 'ok',
      found: `${taken}; ${gigabytes(image.diskFreeBytes)} are free there`,
    };
  return {
    what: 'store',
    state: 'note',
    found:
      `${taken}, but only ${gigabytes(image.diskFreeBytes)} are free there: ` +
      'when they are used up, every database in the store stops',
    remedy: `make ${gigabytes(missing)} of room on the disk of ${image.path}`,
  };
}

async function nearestDirectory(path: string): Promise<string> {
  return (await exists(path)) ? path : nearestDirectory(dirname(path));
}

/** Whether outgoing connections of services are refused. */
async function egress(): Promise<Finding> {
  const { refused, note } = await probeEgress();
  return { what: 'outgoing connections', state: refused ? 'ok' : 'note', found: note };
}

/** How VPCs keep others out here. */
async function vpcs(): Promise<Finding> {
  const { method, note } = await probeNetworks();
  return { what: 'VPCs', state: method === 'bridge' ? 'ok' : 'note', found: note };
}

/** Whether services can be backed up off this machine. */
async function pgBackRest(usable: readonly Installation[]): Promise<Finding> {
  const what = 'pgBackRest';
  const pgbackrest = await lookUpPgBackRest();
  const capability = offMachineOf({
    pgbackrest,
    installations: { usable: [...usable], tooOld: [] },
  });
  if (pgbackrest === null)
    return {
      what,
      state: 'note',
      found: 'not installed: there are no backups off this machine',
      remedy: PGBACKREST_REMEDY,
    };
  const place = `${pgbackrest.version}, ${pgbackrest.program}`;
  const why = 'missing' in capability ? capability.missing : capability.note;
  return why === undefined
    ? { what, state: 'ok', found: place }
    : { what, state: 'note', found: place, remedy: why };
}

async function program(name: ProgramName): Promise<Finding> {
  const { what, remedy } = PROGRAMS[name];
  const found = await findProgram(name);
  return found === null
    ? { what, state: 'missing', found: 'not installed', remedy }
    : { what, state: 'ok', found: `${found.version}, ${found.path}` };
}

// For `howdah doctor`: servers whose PostgreSQL was replaced or removed since they started.

/**
 * Compares the programs of processes with the installed ones. It runs none of them: the process of
 * a tenant's user could name any program.
 *
 * @param roots the data directories of this installation
 */
async function replacedBinaries(
  usable: readonly Installation[],
  roots: readonly string[],
): Promise<Finding[]> {
  const current = new Set(
    await Promise.all(usable.map(({ bin }) => fileOf(join(bin, 'postgres')))),
  );
  const replaced = new Set<string>();
  for (const { data, pid } of await runningPostmasters()) {
    const root = roots.find((one) => data.startsWith(`${one}/`));
    if (root === undefined) continue;
    const file = await fileOf(`/proc/${pid}/exe`);
    if (file !== null && !current.has(file)) replaced.add(nameOf(data.slice(root.length + 1)));
  }
  if (replaced.size === 0) return [];
  return [
    {
      what: 'running PostgreSQL',
      state: 'note',
      found:
        `the PostgreSQL of ${[...replaced].join(', ')} was replaced or ` +
        'removed since they started',
      remedy:
        'howdah service restart NAME, or a maintenance window (HOWDAH_MAINTENANCE_WINDOW); the ' +
        'metadata database: howdah down --databases, then howdah up',
    },
  ];
}

/** Device and number of a file, through links; null: it is gone, or of another user's process. */
async function fileOf(path: string): Promise<string | null> {
  return stat(path).then(
    ({ dev, ino }) => `${dev} ${ino}`,
    () => null,
  );
}

/** @param data below a data directory: services/ID/data, services/ID/members/1/data, store/data */
function nameOf(data: string): string {
  const [kind, id] = data.split('/');
  return kind === 'services' ? `service ${id}` : 'the metadata database';
}

// For `howdah doctor`: what the machine has, and what the sizes of its services take together.

/** The regions of a machine share its processors and memory; their disks may differ. */
async function capacityFinding(home: string): Promise<Finding> {
  const capacity = await measureCapacity();
  const committed = await committedOnMachine(home);
  const has = describeCapacity(capacity);
  const what = 'capacity';
  if (committed === null) return { what, state: 'ok', found: has };
  if (typeof committed === 'string')
    return {
      what,
      state: 'ok',
      found: `${has}; the sizes of services are not known: ${committed}`,
    };
  const { sum, diskBytes } = committed;
  const over = overcommitment(sum, capacity, diskBytes);
  const sizes =
    `the sizes of the services are ${sum.cpu_millis / 1000} CPU, ${sum.memory_gbs} GB of memory ` +
    `and ${sum.storage_gb} GB of disk`;
  if (over === null) return { what, state: 'ok', found: `${has}; ${sizes}` };
  return {
    what,
    state: 'note',
    found:
      `${has}; ${sizes} together: more than there is (${over}). They work until they use it at ` +
      'the same time',
    remedy:
      'resize or delete services (howdah service resize NAME), or use a larger machine; howdah ' +
      'metrics shows what a service uses',
  };
}

type OnMachine = Readonly<{ sum: Committed; diskBytes: number }>;

/** null: there is no installation yet; a sentence: its metadata database does not answer. */
async function committedOnMachine(home: string): Promise<OnMachine | string | null> {
  try {
    const connection = await connectionOf(home);
    if (connection === null) return null;
    const places = await readRegionPlaces(home);
    const all = await readCommittedOf(connection);
    const found = places.flatMap(({ code }) => all.get(code) ?? []);
    const add = (of: (one: Committed) => number) => found.reduce((sum, one) => sum + of(one), 0);
    const sites = (await findSites(home)).flatMap(({ site }) => (site === null ? [] : [site]));
    return {
      sum: {
        servers: add((one) => one.servers),
        cpu_millis: add((one) => one.cpu_millis),
        memory_gbs: add((one) => one.memory_gbs),
        storage_gb: add((one) => one.storage_gb),
      },
      diskBytes: await diskBytesOf(sites.map(({ layout }) => layout.root)),
    };
  } catch (error) {
    return messageOf(error);
  }
}

/** Regions can share a disk. */
async function diskBytesOf(directories: readonly string[]): Promise<number> {
  const disks = await Promise.all(
    directories.map(async (one): Promise<[number, number]> => {
      const [{ dev }, { totalBytes }] = await Promise.all([stat(one), diskUsage(one)]);
      return [dev, totalBytes];
    }),
  );
  return [...new Map(disks).values()].reduce((sum, bytes) => sum + bytes, 0);
}

async function connectionOf(home: string): Promise<ClientConfig | null> {
  const place = await findMetadataPlace(home, null);
  if (place !== null) return { connectionString: place };
  const site = (await findSites(home))[0]?.site ?? null;
  return site === null ? null : storeConnection(site);
}
