/**
 * PostgreSQL as its manual sets it up: a plain initdb with the binaries of the services, TLS and
 * SCRAM, and its own settings otherwise. It runs on the same file system, as the same kind of
 * system user, in a session of its own.
 */
import { chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { quoted } from '../../packages/server/src/domain/postgres/settings.ts';
import {
  connectBare,
  makeDirectories,
  removeBare,
  setPassword,
  startBare,
  type BareKit,
  type BareServer,
} from './bare.ts';
import { atEnd } from './cleanup.ts';
import { LOOPBACK } from './cloud.ts';
import { run } from './run.ts';

export type PlainServer = {
  server: BareServer;
  password: string;
  /** Stops and removes it. */
  forget: () => Promise<void>;
};

/**
 * Makes and starts a server with the role and the database of a service.
 *
 * @param sharedBuffers null: PostgreSQL's default
 */
export async function startPlain(kit: BareKit, sharedBuffers: string | null): Promise<PlainServer> {
  const server = await makeDirectories(kit);
  const forget = atEnd(() => removeBare(kit, server));
  await initialise(kit, server);
  await configure(kit, server, sharedBuffers);
  await startBare(kit, server);
  const admin = await connectBare(server);
  await admin.query('create role tsdbadmin login');
  await admin.query('create database tsdb owner tsdbadmin');
  const password = await setPassword(admin);
  admin.connection.stream.destroy();
  return { server, password, forget };
}

/** Local connections need no password: only the user of the server enters its socket directory. */
async function initialise({ machine, installation }: BareKit, server: BareServer): Promise<void> {
  const { owner } = machine;
  const authentication = ['--auth-local=trust', '--auth-host=scram-sha-256'];
  await run(
    join(installation.bin, 'initdb'),
    ['--pgdata', server.paths.data, '--username=howdah', ...authentication],
    {
      ...(owner === null ? {} : { uid: owner.uid, gid: owner.gid }),
      env: { PATH: '/usr/bin:/bin', LANG: 'C.UTF-8' },
      deadlineMs: 600_000,
    },
  );
}

/** The file of initdb, and after it what a server needs for clients over TLS. */
async function configure(
  { machine, certificate }: BareKit,
  { paths, port }: BareServer,
  sharedBuffers: string | null,
): Promise<void> {
  const settings = {
    include: quoted(join(paths.data, 'postgresql.conf')),
    listen_addresses: quoted(LOOPBACK),
    port: String(port),
    unix_socket_directories: quoted(paths.socket),
    ssl: 'on',
    ssl_cert_file: quoted(join(paths.config, 'server.crt')),
    ssl_key_file: quoted(join(paths.config, 'server.key')),
    ...(sharedBuffers === null ? {} : { shared_buffers: quoted(sharedBuffers) }),
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}\n`);
  const files = {
    'postgresql.conf': lines.join(''),
    'server.crt': certificate.certificatePem,
    'server.key': certificate.keyPem,
  };
  for (const [name, text] of Object.entries(files)) {
    const path = join(paths.config, name);
    await writeFile(path, text, { mode: 0o600 });
    if (machine.owner !== null) await chown(path, machine.owner.uid, machine.owner.gid);
  }
}
