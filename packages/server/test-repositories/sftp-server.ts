/** A real SFTP server, OpenSSH's, with a host key and a client's key of its own. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { claimPorts } from '../test/harness.ts';
import { run } from '../test/probe.ts';
import { programOf } from './programs.ts';
import { until } from '../test/until.ts';

/** Where it goes with less privileges; a service of the system would make the directory. */
const PRIVILEGE_SEPARATION = '/run/sshd';

export type SftpServer = Awaited<ReturnType<typeof startSftp>>;

/** @param directory its own */
export async function startSftp(directory: string) {
  const program = await programOf('sshd', 'apt-get install openssh-server');
  const names = ['host', 'client', 'unknown'] as const;
  const [host, client, unknown] = names.map((name) => join(directory, name));
  if (host === undefined || client === undefined || unknown === undefined)
    throw new Error('three names were given');
  for (const key of [host, client, unknown])
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', '', '-f', key]);
  const port = await claimPorts();
  const config = join(directory, 'sshd_config');
  await writeFile(
    config,
    [
      `ListenAddress 127.0.0.1:${port}`,
      `HostKey ${host}`,
      `AuthorizedKeysFile ${client}.pub`,
      `PidFile ${join(directory, 'pid')}`,
      'AuthenticationMethods publickey',
      'PermitRootLogin prohibit-password',
      'StrictModes no',
      'Subsystem sftp internal-sftp',
      'ForceCommand internal-sftp',
    ].join('\n'),
  );
  await mkdir(PRIVILEGE_SEPARATION, { recursive: true });
  let child: ChildProcess | null = null;
  const start = async (): Promise<void> => {
    const begun = spawn(program, ['-D', '-f', config], { stdio: 'ignore' });
    child = begun;
    await until('sshd answers', async () => begun.exitCode !== null || (await listens(port)));
    if (begun.exitCode !== null) throw new Error(`sshd ended with ${begun.exitCode}`);
  };
  /** Also the processes of its sessions, which are children of it. */
  const stop = async (): Promise<void> => {
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  };
  await start();
  const [, hostKey = ''] = (await readFile(`${host}.pub`, 'utf8')).split(' ');
  return {
    start,
    stop,
    /** The options of `howdah repo add`, each with its value. */
    options: (more: Record<string, string> = {}): string[] => {
      const fingerprint = createHash('sha256').update(hostKey, 'base64').digest('hex');
      const place = { sftp: `127.0.0.1:${port}`, user: userInfo().username };
      const keys = { 'key-file': client, 'host-fingerprint': fingerprint };
      const options = { ...place, ...keys, ...more };
      return Object.entries(options).flatMap(([option, value]) => [`--${option}`, value]);
    },
    /** A key that it does not know. */
    unknown,
  };
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    }).on('error', () => resolve(false));
  });
}
