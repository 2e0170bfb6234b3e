/** Servers of tests that speak TLS, and may be away for a while. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import type { Server } from 'node:net';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { claimPorts } from '../test/harness.ts';
import type { ServerCertificate } from '../test/probe.ts';
import { programOf } from './programs.ts';
import { until } from '../test/until.ts';

export const HOST = '127.0.0.1';

/** Programs for repositories, with the command that adds them. */
export const repositoryServer = (name: string): Promise<string> =>
  programOf(name, 'PATH=$(tools/repository-servers/build.sh):$PATH');

type Start = {
  /** The server's program. */
  name: string;
  /** The server's own directory, for the files of the certificate. */
  directory: string;
  certificate: ServerCertificate;
  args: (listener: { port: number; certificate: string; key: string }) => string[];
  env: Record<string, string>;
  /** The signal that ends it; default: SIGKILL. */
  endsBy?: NodeJS.Signals;
};

/** Starts a server that terminates TLS by itself, and waits until it does. */
export async function startTlsServer({
  name,
  directory,
  certificate,
  args,
  env,
  endsBy = 'SIGKILL',
}: Start) {
  const program = await repositoryServer(name);
  const port = await claimPorts();
  const files = {
    certificate: join(directory, `${port}.crt`),
    key: join(directory, `${port}.key`),
  };
  await writeFile(files.certificate, certificate.certificatePem);
  await writeFile(files.key, certificate.keyPem, { mode: 0o600 });
  let child: ChildProcess | null = null;
  const start = async (): Promise<void> => {
    const begun = spawn(program, args({ port, ...files }), {
      stdio: 'ignore',
      env: { PATH: process.env['PATH'] ?? '', ...env },
    });
    child = begun;
    await until(`${name} answers`, async () => begun.exitCode !== null || (await speaksTls(port)));
    if (begun.exitCode !== null) throw new Error(`${name} ended with ${begun.exitCode}`);
  };
  await start();
  return {
    port,
    /** Starts it again after {@link stop}, on the same port. */
    start,
    stop: async (): Promise<void> => {
      if (child === null || child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.kill(endsBy);
      await ended;
    },
  };
}

function speaksTls(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: HOST, port, rejectUnauthorized: false }, () => {
      socket.destroy();
      resolve(true);
    }).on('error', () => resolve(false));
  });
}

/** @param port default: any that is free */
export async function listen(server: Server, port = 0): Promise<number> {
  await once(server.listen(port, HOST), 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('it does not listen');
  return address.port;
}

export const close = (server: Server): Promise<void> =>
  new Promise((resolve) => void server.close(() => resolve()));
