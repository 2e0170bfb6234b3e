/**
 * The TLS gateway of regions with a domain: it connects each client to the service whose name it
 * asks for in TLS, and passes encrypted bytes on. It has no key and no right in Kubernetes
 * (docs/decisions/0073-tls-gateway.md).
 */
import { once, type EventEmitter } from 'node:events';
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type ServerResponse,
} from 'node:http';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { readFile } from 'node:fs/promises';
import { Resolver } from 'node:dns/promises';
import { Counter, Gauge, Registry } from 'prom-client';
import type { Log } from '../lib/log.ts';
import { createRounds } from '../lib/rounds.ts';
import { TUNING } from '../lib/tuning.ts';
import { createPlaces, type Limits } from './limits.ts';
import { createRoutes, type Names } from './routes.ts';
import { serveClient, type Refusal, type Timeouts } from './session.ts';

type TlsGatewayOptions = NamesOptions &
  Readonly<{
    /** Null: all addresses of the machine. */
    host: string | null;
    /** Where clients connect; 0: any that is free. */
    port: number;
    /** Where the health and the metrics are; 0: any that is free. */
    healthPort: number;
    limits: Limits;
    /**
     * For how long clients are still accepted after the end was asked for, ms: load balancers learn
     * by the health that this one ends.
     */
    drainMs: number;
    /** How long sessions may go on after that, ms. */
    graceMs: number;
    log: Log;
  }>;

export type TlsGateway = Readonly<{
  port: number;
  healthPort: number;
  /** Ends once all clients have gone, or the grace period is over. */
  close: () => Promise<void>;
}>;

const TIMEOUTS: Timeouts = {
  handshakeMs: 10_000,
  lookupMs: 5000,
  connectMs: 10_000,
  endMs: 10_000,
};
/** The port of servers and poolers at the Services of the cluster. */
const SERVICE_PORT = 5432;

/** @throws Error when a port cannot be used */
export async function startTlsGateway(options: TlsGatewayOptions): Promise<TlsGateway> {
  const { host, port, healthPort, limits, drainMs, graceMs, log } = options;
  const { names, clusterDomain } = await clusterNames(options);
  const places = createPlaces(limits);
  const registry = new Registry();
  const counted = countClients(registry, places.count, log);
  const parts = {
    places,
    routes: createRoutes(names, clusterDomain, () => performance.now()),
    timeouts: TIMEOUTS,
    port: SERVICE_PORT,
    ...counted,
  };
  const clients = new Set<Socket>();
  // Without a limit of its own: a client too many is refused by `places`, and counted.
  const server = createServer((client) => {
    clients.add(client);
    client.once('close', () => clients.delete(client));
    void serveClient(client, parts);
  });
  let isEnding = false;
  const health = serveHealth(registry, () => isEnding);
  for (const one of [server, health]) keepListening(one, counted.notAccepted);
  await listen(server, port, host);
  await listen(health, healthPort, host).catch((error: unknown) => {
    server.close();
    throw error;
  });
  log.info({ port: portOf(server), healthPort: portOf(health), clusterDomain }, 'TLS gateway');
  return {
    port: portOf(server),
    healthPort: portOf(health),
    close: async () => {
      isEnding = true;
      await sleep(drainMs);
      const timer = setTimeout(() => clients.forEach((client) => client.destroy()), graceMs);
      server.close();
      await once(server, 'close');
      clearTimeout(timer);
      counted.close();
      health.close();
      health.closeAllConnections();
    },
  };
}

/** Counts clients, and logs how many were refused: a line for each reason, at most every 10 s. */
function countClients(
  registry: Registry,
  count: () => Readonly<{ sessions: number; handshakes: number }>,
  log: Log,
) {
  const registers = [registry];
  const gauges = [
    ['sessions', 'sessions that are open'],
    ['handshakes', 'clients that are not connected to their server yet'],
  ] as const;
  for (const [name, help] of gauges)
    registry.registerMetric(
      new Gauge({
        name: `howdah_gateway_${name}`,
        help,
        registers: [],
        collect() {
          this.set(count()[name]);
        },
      }),
    );
  const connected = new Counter({
    name: 'howdah_gateway_connected_total',
    help: 'clients that were connected to their server',
    registers,
  });
  const refused = new Counter({
    name: 'howdah_gateway_refused_total',
    help: 'clients that were not, by the reason',
    labelNames: ['reason'],
    registers,
  });
  const unlogged = new Map<string, number>();
  const note = (reason: string): void => void unlogged.set(reason, (unlogged.get(reason) ?? 0) + 1);
  const flush = (): void => {
    for (const [reason, clients] of unlogged) log.warn({ reason, clients }, 'refused clients');
    unlogged.clear();
  };
  const round = createRounds(TUNING.rounds, log).every('gatewayLog', flush);
  round.startLater();
  return {
    connected: (): void => connected.inc(),
    refused: (reason: Refusal): void => {
      refused.inc({ reason });
      // Load balancers examine the port in this way.
      if (reason !== 'gone') note(reason);
    },
    notAccepted: (code: string): void => {
      refused.inc({ reason: 'not_accepted' });
      note(`not_accepted: ${code}`);
    },
    close: (): void => {
      void round.close();
      flush();
    },
  };
}

/**
 * Has a server go on after an error of `accept`, which a lack of memory or descriptors causes: it
 * would end the sessions of all.
 */
function keepListening(server: EventEmitter, notAccepted: (code: string) => void): void {
  server.on('error', (error: unknown) =>
    notAccepted(error instanceof Error && 'code' in error ? String(error.code) : 'unknown'),
  );
}

function serveHealth(registry: Registry, isEnding: () => boolean): HttpServer {
  return createHttpServer((request, answer) => {
    if (request.url === '/health') {
      answer.statusCode = isEnding() ? 503 : 200;
      answer.end(isEnding() ? 'ending\n' : 'ok\n');
    } else if (request.url === '/metrics') {
      void sendMetrics(registry, answer);
    } else {
      answer.statusCode = 404;
      answer.end();
    }
  });
}

async function sendMetrics(registry: Registry, answer: ServerResponse): Promise<void> {
  const text = await registry.metrics();
  answer.setHeader('content-type', registry.contentType);
  answer.end(text);
}

async function listen(server: Server, port: number, host: string | null): Promise<void> {
  server.listen(port, host ?? undefined);
  await once(server, 'listening');
}

function portOf(server: Server): number {
  const address: AddressInfo | string | null = server.address();
  return typeof address === 'object' ? (address?.port ?? 0) : 0;
}

// The DNS of the cluster that the gateway runs in.

type NamesOptions = Readonly<{
  /** Addresses of DNS servers; null: those of the machine. */
  dns: readonly string[] | null;
  /** The domain of the names of the cluster; null: that of the machine's search path. */
  clusterDomain: string | null;
}>;

const LOOKUP_MS = 2000;
const TRIES = 2;
const USUAL_DOMAIN = 'cluster.local';

async function clusterNames({
  dns,
  clusterDomain,
}: NamesOptions): Promise<Readonly<{ names: Names; clusterDomain: string }>> {
  const resolver = new Resolver({ timeout: LOOKUP_MS, tries: TRIES });
  if (dns !== null) resolver.setServers(dns);
  return {
    names: {
      resolveCname: (name) => resolver.resolveCname(name),
      resolve4: (name) => resolver.resolve4(name),
      resolve6: (name) => resolver.resolve6(name),
    },
    clusterDomain: clusterDomain ?? (await findClusterDomain()),
  };
}

/** Kubernetes gives each pod the search path NAMESPACE.svc.DOMAIN svc.DOMAIN DOMAIN. */
async function findClusterDomain(): Promise<string> {
  const text = await readFile('/etc/resolv.conf', 'utf8').catch(() => '');
  return /^search\s.*?(?:^|\s)svc\.(\S+)/m.exec(text)?.[1] ?? USUAL_DOMAIN;
}
