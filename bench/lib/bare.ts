/**
 * The floor: PostgreSQL servers that are made and run by hand, from the same template, with the
 * same binaries, on the same file system as the measured services, with only the steps that cannot
 * be omitted (docs/performance.md, recipe R1).
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdir, mkdtemp, open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { DEFAULT_SIZE } from '@howdah/contract';
import { Client } from 'pg';
import { removeTree } from '../../packages/server/src/engine/local/host/clone.ts';
import { configFiles } from '../../packages/server/src/engine/local/postgres/files.ts';
import { configUsersOf, ownerOf } from '../../packages/server/src/engine/local/host/users.ts';
import { writeSystemIdentifier } from '../../packages/server/src/engine/postgres/data/identity.ts';
import {
  installationFor,
  type Installation,
} from '../../packages/server/src/engine/local/postgres/installations.ts';
import {
  instancePaths,
  type InstancePaths,
} from '../../packages/server/src/engine/local/host/layout.ts';
import { prepareMachine } from '../../packages/server/src/engine/local/host/machine.ts';
import type { Machine } from '../../packages/server/src/engine/local/host/machine-record.ts';
import { createTemplates } from '../../packages/server/src/engine/local/postgres/templates.ts';
import { scramVerifier } from '../../packages/server/src/lib/scram.ts';
import {
  issueServerCertificate,
  openCertificateAuthority,
} from '../../packages/server/src/lib/tls.ts';
import { atEnd } from './cleanup.ts';
import { selectOverTls, type Cloud } from './cloud.ts';
import { stopwatch, type Sample } from './measure.ts';
import { freePort, run } from './run.ts';

/** The parts of a server that is made by hand. */
export type BareKit = {
  machine: Machine;
  installation: Installation;
  template: string;
  certificate: { certificatePem: string; keyPem: string };
  ca: string;
  /** The directory of the servers. */
  directory: string;
};

/**
 * ours: the settings of a service of the default size; small: PostgreSQL's defaults, with
 * shared_buffers=16MB.
 */
export type BareSettings = 'ours' | 'small';

export type BareServer = { paths: InstancePaths; port: number; process: ChildProcess | null };

/** Uses the template of a running installation. */
export async function bareKit(cloud: Cloud): Promise<BareKit> {
  const machine = await prepareMachine(cloud.home);
  const installation = installationFor(machine.installations.usable, [], null);
  if (installation === null) throw new Error('no PostgreSQL');
  const { data: template } = await createTemplates(machine).ensure(installation, []);
  const authority = await openCertificateAuthority(join(cloud.home, 'ca'));
  const certificate = await issueServerCertificate(authority, ['127.0.0.1', 'localhost']);
  const directory = join(cloud.home, '..', 'bare');
  await mkdir(directory, { recursive: true });
  return { machine, installation, template, certificate, ca: cloud.ca, directory };
}

/** For servers by hand that run as the user of a service: its data is theirs too. */
export const kitOfService = (kit: BareKit, paths: InstancePaths): BareKit => ({
  ...kit,
  machine: { ...kit.machine, owner: ownerOf(kit.machine, paths) },
});

/** Clones the template, gives it another system identifier, writes its files. */
export async function makeBare(
  kit: BareKit,
  settings: BareSettings,
  lap: (part: string) => void = () => undefined,
): Promise<BareServer> {
  const server = await makeDirectories(kit);
  lap('directories');
  await cloneByHand(kit, server.paths.data);
  lap('clone');
  await writeSystemIdentifier(server.paths.data);
  await writeFiles(kit, server, settings);
  lap('identity + files');
  return server;
}

/** The directories of a server, without its data. */
export async function makeDirectories(kit: BareKit): Promise<BareServer> {
  const paths = instancePaths(await mkdtemp(join(kit.directory, 'b-')));
  const port = await freePort();
  const owner = kit.machine.owner;
  for (const directory of [paths.config, paths.socket, paths.logs, paths.archive])
    await mkdir(directory, { mode: 0o700 });
  if (owner !== null) {
    for (const directory of [paths.root, paths.config, paths.socket, paths.logs, paths.archive])
      await chown(directory, owner.uid, owner.gid);
  }
  return { paths, port, process: null };
}

/** The configuration files of a server. */
export async function writeFiles(
  kit: BareKit,
  { paths, port }: BareServer,
  settings: BareSettings,
): Promise<void> {
  const owner = kit.machine.owner;
  for (const [name, text] of Object.entries(filesOf(kit, paths, port, settings))) {
    await writeFile(join(paths.config, name), text, { mode: 0o600 });
    if (owner !== null) await chown(join(paths.config, name), owner.uid, owner.gid);
  }
}

async function cloneByHand({ template, machine }: BareKit, to: string): Promise<void> {
  switch (machine.cloneMethod) {
    case 'subvolume':
      await run('btrfs', ['subvolume', 'snapshot', template, to]);
      return;
    case 'reflink':
      await run('cp', ['-a', '--reflink=always', template, to]);
      return;
    case 'copy':
      await run('cp', ['-a', '--reflink=never', template, to]);
  }
}

function filesOf(
  kit: BareKit,
  paths: InstancePaths,
  port: number,
  settings: BareSettings,
): Record<string, string> {
  const listen = { address: '127.0.0.1', port };
  const ours = configFiles(
    {
      paths,
      installation: kit.installation,
      extensions: [],
      size: DEFAULT_SIZE,
      storageGb: null,
      listen,
      allowedNetworks: null,
    },
    configUsersOf(kit.machine.owner),
  );
  // The connection settings are ours in both; the others are PostgreSQL's
  // defaults in the small one.
  const connection = new RegExp(
    '^(listen_addresses|port|unix_socket_directories|unix_socket_permissions|hba_file|ident_file|' +
      'ssl|ssl_cert_file|ssl_key_file) = ',
  );
  const small = ours['postgresql.conf'].split('\n').filter((line) => connection.test(line));
  return {
    ...ours,
    ...(settings === 'small'
      ? { 'postgresql.conf': `${small.join('\n')}\nshared_buffers = 16MB\n` }
      : {}),
    'server.crt': kit.certificate.certificatePem,
    'server.key': kit.certificate.keyPem,
  };
}

/**
 * Starts a server and waits until it reports that it is ready.
 *
 * @param more further arguments of the server
 */
export async function startBare(
  kit: BareKit,
  server: BareServer,
  more: readonly string[] = [],
): Promise<void> {
  const { paths } = server;
  const owner = kit.machine.owner;
  const log = await open(paths.startLog, 'a', 0o600);
  const child = spawn(
    join(kit.installation.bin, 'postgres'),
    ['-D', paths.data, '-c', `config_file=${join(paths.config, 'postgresql.conf')}`, ...more],
    {
      cwd: '/',
      env: { PATH: '/usr/bin:/bin', LANG: 'C.UTF-8' },
      stdio: ['ignore', log.fd, log.fd],
      // In another process group: Ctrl-C is for the benchmark, which then stops the servers.
      detached: true,
      ...(owner === null ? {} : { uid: owner.uid, gid: owner.gid }),
    },
  );
  await log.close();
  server.process = child;
  const pidFile = join(paths.data, 'postmaster.pid');
  while ((await readFile(pidFile, 'utf8').catch(() => '')).split('\n')[7]?.trim() !== 'ready') {
    if (child.exitCode !== null)
      throw new Error(`a server made by hand ended: ${await readFile(paths.startLog, 'utf8')}`);
    await sleep(1);
  }
}

/** Stops a server with a fast shutdown; returns when it is gone. */
export async function stopBare(server: BareServer): Promise<void> {
  const child = server.process;
  if (child === null || child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGINT');
  await gone;
  server.process = null;
}

export async function removeBare(kit: BareKit, server: BareServer): Promise<void> {
  await stopBare(server);
  await removeTree(server.paths.root, kit.machine.cloneMethod);
}

/** The admin connection over the Unix socket. The caller ends it. */
export async function connectBare({ paths, port }: BareServer): Promise<Client> {
  const client = new Client({ host: paths.socket, port, user: 'howdah', database: 'postgres' });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

/**
 * Sets a random password over an admin connection.
 *
 * @returns the password
 */
export async function setPassword(admin: Client): Promise<string> {
  const password = 'by hand';
  await admin.query(`alter role tsdbadmin password '${await scramVerifier(password)}'`);
  return password;
}

/** Makes a server by hand, up to the first row over TLS, and removes it afterwards. */
export async function createBare(kit: BareKit, settings: BareSettings): Promise<Sample> {
  const watch = stopwatch();
  const server = await makeBare(kit, settings, watch.lap);
  const forget = atEnd(() => removeBare(kit, server));
  await startBare(kit, server);
  watch.lap('start');
  const admin = await connectBare(server);
  const password = await setPassword(admin);
  watch.lap('password');
  await selectOverTls(kit.ca, server.port, password);
  watch.lap('TLS + SELECT');
  const sample = watch.sample();
  admin.connection.stream.destroy();
  await forget();
  return sample;
}

/** An idle server by hand. */
export async function idleBare(
  kit: BareKit,
  settings: BareSettings,
): Promise<{ server: BareServer; forget: () => Promise<void> }> {
  const server = await makeBare(kit, settings);
  const forget = atEnd(() => removeBare(kit, server));
  await startBare(kit, server);
  return { server, forget };
}
