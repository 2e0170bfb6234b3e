/** An installation to measure, and a client of it with as little cost as possible. */
import { chmod, mkdtemp } from 'node:fs/promises';
import { Agent, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { install, type Installation } from '../../packages/server/test/harness.ts';
import { prepareMachine } from '../../packages/server/src/engine/local/host/machine.ts';
import { storeConnection } from '../../packages/server/src/engine/local/postgres/store-instance.ts';
import { atEnd } from './cleanup.ts';
import { stopwatch, type Sample } from './measure.ts';

export type Cloud = Installation & {
  ca: string;
  /** Where clients reach its services. */
  host: string;
  /** Stops and removes it before the end of the run. */
  end: () => Promise<void>;
};

/** Where services of this machine are reached. */
export const LOOPBACK = '127.0.0.1';

/** Starts an installation below a directory. */
export async function openCloud(
  directory: string,
  settings: Record<string, string> = {},
): Promise<Cloud> {
  const home = await mkdtemp(join(directory, 'hd-'));
  // Databases of root run as another user, who must be able to enter the directory.
  await chmod(home, 0o755);
  // A service that a round deletes is gone at once: a disk of benchmarks has no room for restores.
  const installation = await install({
    HOWDAH_HOME: home,
    HOWDAH_RESTORE_HOURS: '0',
    ...settings,
  });
  const end = atEnd(async () => {
    const problems = await installation.destroy();
    for (const problem of problems) process.stderr.write(`audit: ${problem}\n`);
  });
  return { ...installation, ca: await installation.caPem(), host: LOOPBACK, end };
}

const agent = new Agent({ keepAlive: true, maxSockets: 64 });

/** Sends a request below the project over a connection that is kept. */
export async function call(
  cloud: Cloud,
  method: string,
  path: string,
  body?: object,
): Promise<{ status: number; text: string }> {
  const payload = body === undefined ? undefined : JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      `${cloud.apiUrl}/projects/${cloud.projectId}${path}`,
      {
        method,
        agent,
        headers: {
          Authorization: `Bearer ${cloud.key}`,
          ...(payload === undefined
            ? {}
            : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(payload) }),
        },
      },
      (response) => {
        const chunks: string[] = [];
        response.setEncoding('utf8').on('data', (text: string) => chunks.push(text));
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, text: chunks.join('') }),
        );
      },
    );
    request.on('error', reject);
    request.end(payload);
  });
}

export type Service = { id: string; status: string; port: number; password: string };

function parseService(text: string): Service {
  return serviceOf(JSON.parse(text));
}

export function serviceOf(parsed: unknown): Service {
  if (
    typeof parsed !== 'object' ||
    parsed === null ||
    !('service_id' in parsed) ||
    !('status' in parsed) ||
    !('endpoint' in parsed)
  )
    throw new Error(`not a service: ${JSON.stringify(parsed)}`);
  const { endpoint } = parsed;
  const port =
    typeof endpoint === 'object' && endpoint !== null && 'port' in endpoint
      ? Number(endpoint.port)
      : 0;
  const password = 'initial_password' in parsed ? String(parsed.initial_password) : '';
  return { id: String(parsed.service_id), status: String(parsed.status), port, password };
}

/**
 * The pause between a client's polls for READY: short enough to add little,
 * long enough to cost little.
 */
const POLL_MS = 5;

/** Polls until a service has a status. */
export async function untilStatus(cloud: Cloud, id: string, status: string): Promise<void> {
  for (;;) {
    const { text } = await call(cloud, 'GET', `/services/${id}`);
    const service = parseService(text);
    if (service.status === status) return;
    await sleep(POLL_MS);
  }
}

/** Requests a change and checks that it was accepted. */
export async function ask(
  cloud: Cloud,
  method: string,
  path: string,
  body?: object,
): Promise<string> {
  const { status, text } = await call(cloud, method, path, body);
  if (status !== 202) throw new Error(`${method} ${path} was answered ${status}: ${text}`);
  return text;
}

/** Sends a create and waits for its READY. */
export async function create(cloud: Cloud, body: object = {}): Promise<Service> {
  const service = parseService(
    await ask(cloud, 'POST', '/services', { name: 'bench', service_type: 'POSTGRES', ...body }),
  );
  await untilStatus(cloud, service.id, 'READY');
  return service;
}

/** The time from sending the request to the first row over TLS. */
export async function createAndSelect(
  cloud: Cloud,
  body: object = {},
): Promise<{ service: Service; sample: Sample }> {
  const watch = stopwatch();
  const service = parseService(
    await ask(cloud, 'POST', '/services', { name: 'bench', service_type: 'POSTGRES', ...body }),
  );
  watch.lap('answer');
  await untilStatus(cloud, service.id, 'READY');
  watch.lap('until READY');
  await selectOverTls(cloud.ca, service.port, service.password, cloud.host);
  watch.lap('TLS + SELECT');
  return { service, sample: watch.sample() };
}

/** Connects as a user does, TLS checked against the CA and SCRAM, and reads a row. */
export async function selectOverTls(
  ca: string,
  port: number,
  password: string,
  host = LOOPBACK,
): Promise<void> {
  const client = await connectOverTls(ca, port, password, host);
  await client.query('select 1');
  client.connection.stream.destroy();
}

export async function connectOverTls(
  ca: string,
  port: number,
  password: string,
  host = LOOPBACK,
): Promise<Client> {
  const client = new Client({
    host,
    port,
    user: 'tsdbadmin',
    database: 'tsdb',
    password,
    ssl: { ca },
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

/** Deletes a service and waits until nothing of it is left. */
export async function remove(cloud: Cloud, id: string): Promise<void> {
  await ask(cloud, 'DELETE', `/services/${id}`);
  while ((await call(cloud, 'GET', `/services/${id}`)).status !== 404) await sleep(20);
}

/** The durations of the steps of a service's newest operation, by their names, in ms. */
export async function stepsOf(cloud: Cloud, id: string): Promise<Record<string, number>> {
  const [operation] = await cloud.operations(id);
  const steps: Record<string, number> = {};
  for (const { name, started, finished } of operation?.steps ?? []) {
    if (finished !== null)
      steps[name] = (steps[name] ?? 0) + Date.parse(finished) - Date.parse(started);
  }
  return steps;
}

/** A connection to the metadata database. The caller ends it. */
export async function openMetadata(cloud: Cloud): Promise<Client> {
  const client = new Client(storeConnection(await prepareMachine(cloud.home)));
  client.on('error', () => undefined);
  await client.connect();
  return client;
}
