/**
 * One request to a URL of a user: to an allowed address, with a deadline, without redirects. And
 * one connection to a mail server of a user, by the same rules.
 */
import { lookup as resolve, type LookupAddress } from 'node:dns';
import { request as requestHttp, type ClientRequest, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import { connect, isIP, BlockList, type LookupFunction, type Socket } from 'node:net';
import { messageOf } from '@howdah/contract/thrown';

/** The time from the begin of a request to the status of its response. */
const DEADLINE_MS = 10_000;

/** Interim responses (1xx) before the response; more of them are an attack. */
const MAX_INTERIM = 10;

/** The setting that lets private addresses be reached. */
const ALLOW_SETTING = 'HOWDAH_WEBHOOK_NETWORKS';

/** The outcome of a request. error: null when the receiver answered 2xx */
export type Outgoing = { responseStatus: number | null; error: string | null };

/** The address is not allowed. */
class Refused extends Error {}

/** Posts a body. Redirects are not followed: their target was not checked. */
export async function post(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: string | Buffer,
  allowed: BlockList,
): Promise<Outgoing> {
  try {
    const target = new URL(url);
    const literal = literalAddress(target.hostname);
    if (literal !== null && !mayReach(literal, allowed)) throw refusal(target.hostname, literal);
    const send = target.protocol === 'https:' ? requestHttps : requestHttp;
    // No connection is kept: each one is made to an address that was checked.
    const responseStatus = await answerOf(
      send(target, {
        method: 'POST',
        headers: { ...headers, 'Content-Length': Buffer.byteLength(body) },
        agent: false,
        signal: AbortSignal.timeout(DEADLINE_MS),
        lookup: lookupAllowed(allowed),
      }),
      body,
    );
    return { responseStatus, error: problemOf(responseStatus) };
  } catch (error) {
    return { responseStatus: null, error: explain(error) };
  }
}

/**
 * Connects to a host of a user.
 *
 * @param host a name or an address
 * @param signal ends the connection
 * @throws Error that {@link explain} puts into words
 */
export async function connectAllowed(
  host: string,
  port: number,
  allowed: BlockList,
  signal: AbortSignal,
): Promise<Socket> {
  const literal = literalAddress(host);
  if (literal !== null && !mayReach(literal, allowed)) throw refusal(host, literal);
  return new Promise((settle, reject) => {
    const socket = connect({ host, port, lookup: lookupAllowed(allowed), signal });
    // An error before the caller listens must not end the process.
    socket.on('error', () => undefined);
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      settle(socket);
    });
  });
}

/** Why a host can never be reached; null: it may be possible. */
export async function whyNotHost(host: string, allowed: BlockList): Promise<string | null> {
  const literal = literalAddress(host);
  const addresses = literal === null ? await addressesOf(host) : [literal];
  const closed = addresses.find((address) => !mayReach(address, allowed));
  return closed === undefined ? null : refusal(host, closed).message;
}

/**
 * Why a URL can never be posted to; null: it may be possible. A name that cannot be resolved now
 * may be later.
 *
 * @param instead of a user and a password in the URL
 */
export async function whyNotUrl(
  text: string,
  allowed: BlockList,
  instead: string,
): Promise<string | null> {
  if (!URL.canParse(text)) return 'is no URL';
  const url = new URL(text);
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    return `found the scheme ${url.protocol.slice(0, -1)}; allowed: https, http`;
  if (url.username !== '' || url.password !== '')
    return `carries a user or a password, which everybody could read; ${instead}`;
  return whyNotHost(url.hostname, allowed);
}

/**
 * The address in a URL, null for a host name. URLs put IPv6 addresses in brackets, and normalise
 * other ways of writing IPv4.
 */
function literalAddress(hostname: string): string | null {
  const bare = hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(bare) === 0 ? null : bare;
}

async function addressesOf(hostname: string): Promise<string[]> {
  return new Promise((settle) => {
    resolve(hostname, { all: true }, (error, found) =>
      settle(error === null ? found.map(({ address }) => address) : []),
    );
  });
}

/**
 * Resolves a name for the connection that is being made, so that the address cannot change between
 * check and connection.
 */
function lookupAllowed(allowed: BlockList): LookupFunction {
  return (hostname, options, callback) => {
    resolve(hostname, { ...options, all: true }, (error, found: LookupAddress[]) => {
      if (error !== null) return callback(error, '', 0);
      const closed = found.find(({ address }) => !mayReach(address, allowed));
      if (closed !== undefined) return callback(refusal(hostname, closed.address), '', 0);
      const [first] = found;
      if (options.all === true) return callback(null, found);
      return callback(null, first?.address ?? '', first?.family ?? 0);
    });
  };
}

function refusal(hostname: string, address: string): Refused {
  const which =
    hostname.replace(/^\[(.*)\]$/, '$1') === address ? address : `${hostname} is ${address}, which`;
  return new Refused(
    `${which} is an address of this machine or a private network; ${ALLOW_SETTING} can allow it`,
  );
}

/** The status of the response; its body is not read, however long it is. */
async function answerOf(request: ClientRequest, body: string | Buffer): Promise<number> {
  let interim = 0;
  const response = await new Promise<IncomingMessage>((settle, reject) => {
    request.once('response', settle).once('error', reject);
    request.on('information', () => {
      interim++;
      if (interim > MAX_INTERIM)
        request.destroy(new Error(`more than ${MAX_INTERIM} interim responses`));
    });
    request.end(body);
  });
  request.on('error', () => undefined);
  response.destroy();
  return response.statusCode ?? 0;
}

function problemOf(status: number): string | null {
  if (status >= 200 && status < 300) return null;
  if (status >= 300 && status < 400)
    return (
      `the receiver answered ${status}, a redirect, which is not followed: ` +
      'name the URL that it redirects to'
    );
  return `the receiver answered ${status}`;
}

/** Why a request or a connection failed, in words. */
export function explain(error: unknown): string {
  if (error instanceof Refused) return error.message;
  if (!(error instanceof Error)) return String(error);
  if (error.name === 'AbortError' || error.name === 'TimeoutError')
    return `no answer within ${DEADLINE_MS / 1000} s`;
  return `no answer: ${messageOf(error)}`;
}

// The addresses that webhooks and exporters may send to: none of this machine or its network,
// unless configured.

/**
 * Networks that are not part of the Internet: RFC 6890 and its successors, IANA's special-purpose
 * address registries.
 */
const PRIVATE_NETWORKS = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '2001::/23', // Teredo, which holds IPv4 addresses, among others
  '2001:db8::/32',
  '2002::/16', // 6to4: reaches any IPv4 address
  '3fff::/20',
] as const;

const privateNetworks = blockListOf(PRIVATE_NETWORKS);
/**
 * The addresses of the IPv6 Internet. Any other address is local, or holds an IPv4 address in one
 * of many ways: `::127.0.0.1`, `::ffff:0:127.0.0.1`, `64:ff9b::127.0.0.1`.
 */
const internetIpv6 = blockListOf(['2000::/3']);
/** IPv4 as a socket for IPv6 shows it; checked as IPv4. */
const mappedIpv4 = blockListOf(['::ffff:0:0/96']);
/** ISATAP: the last 32 bits are an IPv4 address at the end of a tunnel. */
const ISATAP = /:(?:0?[02]00)?:?5efe:[0-9a-f]{1,4}:[0-9a-f]{1,4}$/;

/** @param networks addresses, and networks in CIDR notation */
export function blockListOf(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', prefix] = network.split('/');
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return list;
}

/**
 * Whether a webhook or an exporter may send to an address. An IPv4 address inside an IPv6 one
 * counts as the IPv4 address.
 *
 * @param allowed networks that may be reached although they are private
 */
export function mayReach(address: string, allowed: BlockList): boolean {
  const family = isIP(address);
  if (family === 0) return false;
  const kind = family === 6 ? 'ipv6' : 'ipv4';
  if (allowed.check(address, kind)) return true;
  if (privateNetworks.check(address, kind)) return false;
  return (
    kind === 'ipv4' ||
    mappedIpv4.check(address, kind) ||
    (internetIpv6.check(address, kind) && !ISATAP.test(address))
  );
}
