/** How many connections one address may hold: slow clients cannot take what others need. */
import type { RequestListener } from 'node:http';
import { BlockList, isIPv6, type Server, type Socket } from 'node:net';
import { ApiError } from '@howdah/contract';
import { randomUUID } from 'node:crypto';
import type { HttpSettings } from './context.ts';
import { errorBody } from './errors.ts';
import { sourceOf } from './failures.ts';

/** Refuses further connections of an address that has as many as it may. A trusted proxy's are many people's and not counted. */
export function limitConnections(
  server: Server,
  { connectionsPerAddress, trustedProxies, certificate }: HttpSettings,
): void {
  const open = new Map<string, number>();
  const proxies = addressList(trustedProxies);

  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? '';
    if (isListed(proxies, address)) return;
    const source = sourceOf(address);
    const count = (open.get(source) ?? 0) + 1;
    if (count > connectionsPerAddress) {
      refuse(socket, certificate === null, connectionsPerAddress);
      return;
    }
    open.set(source, count);
    socket.once('close', () => {
      const left = (open.get(source) ?? 1) - 1;
      if (left === 0) open.delete(source);
      else open.set(source, left);
    });
  });
}

/** Requests that one connection may have sent without having read an answer: clients send one, some a few. */
const MOST_PIPELINED = 16;

/**
 * Executor requests on, and ends a connection that sends without end and reads nothing: each request takes memory until its answer has gone, and
 * twelve such connections took 300 MB.
 */
export function limitPipelining(handle: RequestListener): RequestListener {
  const underWay = new WeakMap<Socket, number>();
  return (request, response) => {
    const { socket } = request;
    const count = (underWay.get(socket) ?? 0) + 1;
    if (count > MOST_PIPELINED) {
      socket.destroy();
      return;
    }
    underWay.set(socket, count);
    response.once('close', () => underWay.set(socket, (underWay.get(socket) ?? 1) - 1));
    handle(request, response);
  };
}

/** Says why where it can be understood: without TLS. */
function refuse(socket: Socket, plain: boolean, most: number): void {
  socket.on('error', () => undefined);
  if (!plain) {
    socket.destroy();
    return;
  }
  const error = new ApiError(
    'RATE_LIMITED',
    `this address has ${most} connections open, the maximum; close some, or reuse them`,
  );
  const body = JSON.stringify(errorBody(error, randomUUID()));
  socket.end(
    `HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nRetry-After: 60\r\nConnection: close\r\n\r\n${body}`,
    // Whatever it still sends is not waited for.
    () => socket.destroy(),
  );
}

function addressList(entries: readonly string[]): BlockList {
  const list = new BlockList();
  for (const entry of entries) {
    const [address = '', bits] = entry.split('/');
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

function isListed(list: BlockList, address: string): boolean {
  // An IPv4 client of an IPv6 socket counts with its IPv4 address.
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '');
  return plain !== '' && list.check(plain, isIPv6(plain) ? 'ipv6' : 'ipv4');
}
