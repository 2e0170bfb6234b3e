/**
 * A copy of a service of another region, on its way to this one: a directory of its own beside
 * those of services, `copies/ID`, which becomes `services/ID` when the copy is promoted. So nothing
 * takes it for a service before.
 */
import { existsSync } from 'node:fs';
import { lookup } from 'node:dns/promises';
import { join } from 'node:path';
import { COPY_APPLICATION, type ClientCertificate } from '../../moves.ts';
import type { Endpoint, ServiceSpec } from '../../spec.ts';
import { loadedExtensions } from '../../../domain/postgres/extension-rules.ts';
import { quoted } from '../../../domain/postgres/settings.ts';
import { removeTree } from '../host/clone.ts';
import {
  forgetFollowed,
  readFollowed,
  writeFollowed,
  type Followed,
} from '../host/followed-server.ts';
import type { InstancePaths } from '../host/layout.ts';
import type { Machine } from '../host/machine-record.ts';
import { currentBoot, readMarker, writeMarker } from '../host/marker.ts';
import { newOwner } from '../host/ownership.ts';
import { type Owner, configUsersOf, ownerOf, SERVICE_USER } from '../host/users.ts';
import { mkdir, rm } from '../host/root-files.ts';
import { configFiles } from '../postgres/files.ts';
import {
  installationFor,
  missingFor,
  presentOf,
  type Installation,
} from '../postgres/installations.ts';
import { makeInstanceDirectories, writeConfig } from '../postgres/server.ts';
import { writeDurably } from '../../../lib/durable-files.ts';
import { readNow } from '../../../lib/processes.ts';
import { formatLsn, parseLsn } from '../../postgres/data/wal.ts';
import { TAKEN } from '../../postgres/decisions/decide-copy.ts';

/** A copy has one server. */
export type CopySpec = Omit<ServiceSpec, 'ha' | 'set'>;

/** The copy's certificate, and the authority of the service, beside its configuration. */
const [CERTIFICATE, KEY, AUTHORITY] = ['copy.crt', 'copy.key', 'copy-ca.crt'];
const LOGIN_FILES: readonly string[] = [CERTIFICATE, KEY, AUTHORITY];

export const hasCopy = ({ layout }: Pick<Machine, 'layout'>, id: string): boolean =>
  existsSync(layout.copy(id).root);

/**
 * Makes the directory of a copy, once, and keeps how it logs in.
 *
 * @throws Error when its PostgreSQL is not installed, or its name is taken
 */
export async function prepareCopy(
  machine: Machine,
  spec: CopySpec,
  { user, certificatePem, keyPem, authorityPem }: ClientCertificate,
): Promise<void> {
  const paths = machine.layout.copy(spec.id);
  if (existsSync(machine.layout.service(spec.id).root)) throw new Error(TAKEN);
  if ((await readMarker(paths)) === null) await makeDirectory(machine, spec, paths);
  await writeConfig(ownerOf(machine, paths), paths, {
    [CERTIFICATE]: certificatePem,
    [KEY]: keyPem,
    [AUTHORITY]: authorityPem,
  });
  const { host, port } = sourceOf(spec);
  await writeFollowed(paths, { user, host, port, address: await addressOf(host, null) });
}

/** The endpoint of the service that a copy follows. */
function sourceOf({ move }: Pick<ServiceSpec, 'move'>): Endpoint {
  if (move?.as !== 'copy') throw new Error('it is no copy of a service');
  return move.source;
}

async function makeDirectory(
  machine: Machine,
  spec: CopySpec,
  paths: InstancePaths,
): Promise<void> {
  const usable = presentOf(machine.installations.usable);
  const installation = installationFor(usable, spec.addons, spec.major);
  if (installation === null) throw new Error(missingFor(usable, spec.addons, spec.major));
  // One without a marker was not completed.
  await removeTree(paths.root, machine.cloneMethod);
  await mkdir(paths.root, { mode: 0o710 });
  const owner = await newOwner(machine, paths, null);
  await makeInstanceDirectories(owner, paths);
  await writeMarker(paths, {
    id: spec.id,
    installation: installation.name,
    provisioned: false,
    parent: null,
    began: null,
    madeIn: await currentBoot(),
    uid: owner?.name === SERVICE_USER ? owner.uid : null,
    userOf: null,
    recovery: null,
    upgrade: null,
    exchange: null,
  });
}

/**
 * An address of a host. The same as before, as long as the host has it: others may be as good.
 *
 * @throws Error when the host has none
 */
async function addressOf(host: string, before: string | null): Promise<string> {
  const found = await lookup(host, { all: true }).catch((error: unknown) => {
    if (before !== null) return [{ address: before }];
    throw new Error(`the host ${host} of the service has no address here`, { cause: error });
  });
  const addresses = found.map(({ address }) => address);
  const address = addresses.find((one) => one === before) ?? addresses[0];
  if (address === undefined) throw new Error(`the host ${host} of the service has no address here`);
  return address;
}

/**
 * The server that a copy follows, with the address that it has now.
 *
 * @param renew lets the copy connect there
 * @returns null: the copy was never prepared, or may not connect any more
 */
export async function currentlyFollowed(
  paths: InstancePaths,
  spec: Pick<ServiceSpec, 'move'>,
  renew: () => Promise<void>,
): Promise<Followed | null> {
  const before = readFollowed(paths);
  if (before === null) return null;
  const { host, port } = sourceOf(spec);
  const now = {
    user: before.user,
    host,
    port,
    address: await addressOf(host, host === before.host ? before.address : null),
  };
  if (JSON.stringify(now) !== JSON.stringify({ ...now, ...before })) {
    await writeFollowed(paths, now);
    await renew();
  }
  return now;
}

/** How a copy connects to its service, as libpq reads it. @param name its application_name */
export function sourceConnection(
  { config }: Pick<InstancePaths, 'config'>,
  { user, host, address, port }: Followed,
  name: string,
): string {
  const settings = {
    host,
    hostaddr: address,
    port: String(port),
    user,
    sslmode: 'verify-full',
    sslcert: join(config, CERTIFICATE),
    sslkey: join(config, KEY),
    sslrootcert: join(config, AUTHORITY),
    gssencmode: 'disable',
    application_name: name,
    connect_timeout: '10',
    keepalives_idle: '10',
    tcp_user_timeout: '30000',
  };
  return Object.entries(settings)
    .map(([setting, value]) => `${setting}='${value.replaceAll(/['\\]/g, String.raw`\$&`)}'`)
    .join(' ');
}

/**
 * The configuration of a copy: it accepts no sessions, so it needs none of the limits of its
 * service, and nobody can log in.
 *
 * @param followed null: it is being promoted
 */
export function copyFiles(
  spec: CopySpec,
  paths: InstancePaths,
  { installation, owner }: { installation: Installation; owner: Owner | null },
  followed: Followed | null,
): Readonly<Record<string, string>> {
  const files = configFiles(
    {
      paths,
      installation,
      extensions: loadedExtensions(spec),
      size: spec.size,
      storageGb: spec.storageGb,
      listen: null,
      allowedNetworks: [],
    },
    configUsersOf(owner),
  );
  const following = followed === null ? [] : followingConf(paths, followed);
  return { ...files, 'postgresql.conf': `${files['postgresql.conf']}${following.join('\n')}` };
}

function followingConf(paths: InstancePaths, followed: Followed): string[] {
  const source = quoted(sourceConnection(paths, followed, COPY_APPLICATION));
  return [
    'hot_standby = off',
    "wal_retrieve_retry_interval = '1s'",
    `primary_conninfo = ${source}`,
    '',
  ];
}

/** Takes the login of a copy, and what it may connect to. */
export async function forgetLogin(paths: InstancePaths): Promise<void> {
  await forgetFollowed(paths);
  for (const name of LOGIN_FILES) await rm(join(paths.config, name), { force: true });
}

// Beside the data of a copy: that its promotion has begun. It does not follow from then on.

const pathOf = ({ root }: InstancePaths): string => join(root, 'promotion');

/** @param shutdown the position of the shutdown by which the WAL of its service ends */
export async function writeBegun(paths: InstancePaths, shutdown: bigint): Promise<void> {
  await writeDurably(pathOf(paths), `${formatLsn(shutdown)}\n`, 0o600);
}

/** null: its promotion has not begun. */
export function readBegun(paths: InstancePaths): bigint | null {
  const text = readNow(pathOf(paths))?.trim() ?? '';
  return /^[0-9A-F]+\/[0-9A-F]+$/.test(text) ? parseLsn(text) : null;
}

export async function forgetBegun(paths: InstancePaths): Promise<void> {
  await rm(pathOf(paths), { force: true });
}
