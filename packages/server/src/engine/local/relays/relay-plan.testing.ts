/** Plans of relays for tests: their servers are other programs. */
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { instancePaths } from '../host/layout.ts';
import type { RelayPlan } from './messages.ts';

export const LOOPBACK = '127.0.0.1';

/** @param command the program that is started in place of a server */
export async function makePlan(
  root: string,
  port: number,
  serverPort: number,
  command: readonly string[] = ['/bin/false'],
): Promise<RelayPlan> {
  const paths = instancePaths(root);
  for (const path of [paths.data, paths.socket, paths.config, paths.logs])
    await mkdir(path, { recursive: true });
  const program = {
    command,
    owner: null,
    cwd: '/',
    pidFile: paths.pidFile,
    log: paths.startLog,
    within: [],
    enclosure: { within: [], mounts: null },
  };
  return {
    id: 'abcdefghij',
    listen: { address: LOOPBACK, port },
    allowedNetworks: null,
    serverPort,
    launch: { paths, mayHaveOrphans: false, program },
    version: '1',
  };
}

export async function listenAt(
  address: string,
  port = 0,
  serve: (client: Socket) => void = () => undefined,
): Promise<{ server: Server; port: number }> {
  const server = createServer(serve).listen({ host: address, port });
  await once(server, 'listening');
  // oxlint-disable-next-line no-unsafe-type-assertion -- it listens at a port
  return { server, port: (server.address() as AddressInfo).port };
}

export async function freePort(): Promise<number> {
  const { server, port } = await listenAt(LOOPBACK);
  server.close();
  await once(server, 'close');
  return port;
}

/** In place of a server: takes the request for TLS, then returns what it gets. */
export const listenAsServer = () =>
  listenAt(LOOPBACK, 0, (client) => {
    client
      .on('error', () => undefined)
      .once('data', () => {
        client.write('S');
        client.pipe(client);
      });
  });
