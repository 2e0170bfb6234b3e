/** The peer of the pooler: a PgBouncer by hand. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Owner } from '../../packages/server/src/engine/local/host/users.ts';
import {
  issueServerCertificate,
  openCertificateAuthority,
} from '../../packages/server/src/lib/tls.ts';
import { atEnd } from './cleanup.ts';
import { LOOPBACK, type Cloud } from './cloud.ts';
import { freePort } from './run.ts';

export const PGBOUNCER_MISSING = 'PgBouncer is missing: apt-get install pgbouncer';

/** The database of {@link poolerByHand}, named as that of a service's pooler. */
export const POOLED_DATABASE = 'tsdb_transaction';

/** A PgBouncer with TLS, a pool and the one password, and nothing else. */
export async function poolerByHand(
  cloud: Cloud,
  server: { socket: string; port: number; password: string },
  owner: Owner | null,
): Promise<{ port: number; end: () => Promise<void> }> {
  const directory = await mkdtemp(join(cloud.home, '..', 'pgbouncer-'));
  const { certificatePem, keyPem } = await issueServerCertificate(
    await openCertificateAuthority(join(cloud.home, 'ca')),
    [LOOPBACK],
  );
  const port = await freePort();
  const conf = [
    '[databases]',
    `${POOLED_DATABASE} = host=${server.socket} port=${server.port} dbname=tsdb ` +
      'pool_mode=transaction pool_size=80',
    '[pgbouncer]',
    `listen_addr = ${LOOPBACK}`,
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = scram-sha-256',
    `auth_file = ${directory}/users`,
    'client_tls_sslmode = require',
    `client_tls_cert_file = ${directory}/server.crt`,
    `client_tls_key_file = ${directory}/server.key`,
    'log_connections = 0',
    'log_disconnections = 0',
    '',
  ].join('\n');
  const files = {
    'pgbouncer.ini': conf,
    users: `"tsdbadmin" "${server.password}"\n`,
    'server.crt': certificatePem,
    'server.key': keyPem,
  };
  for (const [name, text] of Object.entries(files))
    await writeFile(join(directory, name), text, { mode: 0o600 });
  if (owner !== null)
    for (const name of ['', ...Object.keys(files)])
      await chown(join(directory, name), owner.uid, owner.gid);
  // In another session, as if started by a service manager: in the session of pgbench the scheduler
  // lets the two share a part of the processors.
  const child = spawn('pgbouncer', ['-q', join(directory, 'pgbouncer.ini')], {
    stdio: 'ignore',
    detached: true,
    ...owner,
  });
  const end = atEnd(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill();
    await once(child, 'exit');
  });
  while (!(await accepts(port))) {
    if (child.exitCode !== null)
      throw new Error(`PgBouncer by hand ended with code ${child.exitCode}`);
    await sleep(5);
  }
  return { port, end };
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, LOOPBACK);
  return new Promise((resolve) => {
    socket.once('error', () => resolve(false));
    socket.once('connect', () => socket.end(() => resolve(true)));
  });
}
