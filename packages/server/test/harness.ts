/**
 * A whole installation for a test: its own home, ports and processes, started through the command line that users have.
 * Everything runs for real; `destroy` ends it and checks that nothing is left and that the metadata database agree with the machine.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { get } from 'node:https';
import { chmod, mkdtemp, readFile, readlink, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, type HowdahClient, type Schemas } from '@howdah/client';
import { Client } from 'pg';
import { audit } from '../src/engine/local/admin/audit.ts';
import { readCredentials } from '../src/installation.ts';

/** The command line, as it was built. */
export const HOWDAH = fileURLToPath(new URL('../../cli/dist/howdah.js', import.meta.url));
/** Ports of one installation: the API's, then those for databases. */
const PORTS = 128;

export type Service = Schemas['Service'];
export type Answer = { status: number; body: unknown; headers: Headers };

export type Installation = Awaited<ReturnType<typeof install>>;

/** A directory for an installation, short and open: root's databases run as another user, who must get there. */
export async function makeHome(): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), 'hd-'));
  await chmod(home, 0o755);
  return home;
}

/**
 * Starts an installation.
 *
 * @param settings further settings of the environment, such as HOWDAH_SPARES
 * @param within a command that runs the control plane in turn: with fewer privileges
 */
export async function install(
  settings: Record<string, string> = {},
  within: readonly string[] = [],
) {
  const home = settings['HOWDAH_HOME'] ?? (await makeHome());
  const port = await claimPorts();
  const env: Record<string, string> = {
    PATH: process.env['PATH'] ?? '',
    HOWDAH_HOME: home,
    HOWDAH_PORT: String(port),
    HOWDAH_PORT_RANGE: `${port + 1}-${port + PORTS - 1}`,
    HOWDAH_SPARES: '0',
    ...settings,
  };
  let plane: ChildProcess | null = null;
  const output: string[] = [];

  const up = async (): Promise<void> => {
    const [program, ...words] = [...within, process.execPath, HOWDAH, 'up'] as const;
    const child = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    plane = child;
    child.stdout.setEncoding('utf8').on('data', (text: string) => output.push(text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => output.push(text));
    while (!(await isReady(port))) {
      if (child.exitCode !== null || child.signalCode !== null)
        throw new Error(
          `howdah up ended with ${child.exitCode ?? child.signalCode}: ${output.join('')}`,
        );
      await sleep(20);
    }
  };

  /** Ends the control plane: in order, or as a crash would. The databases go on. */
  const stop = async (signal: 'SIGTERM' | 'SIGKILL'): Promise<void> => {
    const child = plane;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  };

  await up();
  const credentials = await readCredentials(home);
  if (credentials === null) throw new Error('howdah up wrote no credentials');
  const { api_url: apiUrl, project_id: projectId } = credentials;
  const key = `${credentials.public_key}:${credentials.secret_key}`;
  const client: HowdahClient = createClient({ apiUrl, key });

  /** A raw request below the project. An answer of any status is returned. */
  const request = async (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Answer> => {
    const response = await fetch(`${apiUrl}/projects/${projectId}${path}`, {
      method,
      headers: {
        Authorization: `Bearer ${key}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined
        ? {}
        : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    return {
      status: response.status,
      body: parseMaybe(await response.text()),
      headers: response.headers,
    };
  };

  /** A list, page after page. A thing that comes a second time ends it: pages that repeat what was there may have no end. */
  const pages = async <T>(
    path: string,
    idOf: (one: T) => string,
  ): Promise<{ all: T[]; pages: number }> => {
    const found = new Map<string, T>();
    let count = 0;
    for (let next: string | undefined = path; next !== undefined; count++) {
      const { status, body, headers } = await request('GET', next);
      if (status !== 200 || !Array.isArray(body))
        throw new Error(`${next} answered ${status}: ${JSON.stringify(body)}`);
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the answer's schema is checked elsewhere
      for (const one of body as T[]) {
        if (found.has(idOf(one))) throw new Error(`${next} repeats ${idOf(one)}`);
        found.set(idOf(one), one);
      }
      next = /projects\/[a-z0-9]+(\/[^>]+)>; rel="next"/.exec(headers.get('Link') ?? '')?.[1];
    }
    return { all: [...found.values()], pages: count };
  };

  const getService = async (id: string): Promise<Service> => {
    const { data } = await client.GET('/projects/{project_id}/services/{service_id}', {
      params: { path: { project_id: projectId, service_id: id } },
    });
    if (data === undefined) throw new Error(`no body for service ${id}`);
    return data;
  };

  /** Waits until a service has a status; the test's own time limit is the deadline. */
  const until = async (id: string, status: Service['status']): Promise<Service> => {
    for (;;) {
      const service = await getService(id);
      if (service.status === status) return service;
      await sleep(20);
    }
  };

  const create = async (
    body: Schemas['CreateService'],
    status: Service['status'] = 'READY',
  ): Promise<Service & { initial_password: string }> => {
    const { data } = await client.POST('/projects/{project_id}/services', {
      params: { path: { project_id: projectId } },
      body,
    });
    if (data?.initial_password === undefined) throw new Error('create answered without a password');
    return { ...(await until(data.service_id, status)), initial_password: data.initial_password };
  };

  const operations = async (serviceId?: string): Promise<Schemas['Operation'][]> => {
    const query = serviceId === undefined ? {} : { service_id: serviceId };
    const { data } = await client.GET('/projects/{project_id}/operations', {
      params: { path: { project_id: projectId }, query },
    });
    return data ?? [];
  };

  /** Runs the command line against this installation. */
  const cli = async (
    ...args: string[]
  ): Promise<{ code: number | null; stdout: string; stderr: string }> => {
    const child = spawn(process.execPath, [HOWDAH, ...args], {
      env: { ...env, NO_COLOR: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const [stdout, stderr] = [[] as string[], [] as string[]];
    child.stdout.setEncoding('utf8').on('data', (text: string) => stdout.push(text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => stderr.push(text));
    await once(child, 'close');
    return { code: child.exitCode, stdout: stdout.join(''), stderr: stderr.join('') };
  };

  /** What the audit finds wrong once nothing is on its way any more. */
  const auditNow = (): Promise<string[]> =>
    audit({ home, databaseUrl: settings['DATABASE_URL'] ?? null });

  /** Ends everything and removes it. @returns what the audit found wrong before */
  const destroy = async (): Promise<string[]> => {
    const problems = await auditNow();
    await stop('SIGTERM');
    const { code, stderr } = await cli('down', '--databases');
    if (code !== 0) problems.push(`howdah down --databases failed: ${stderr}`);
    const data = await readlink(join(home, 'data')).catch(() => join(home, 'data'));
    await rm(data, { recursive: true, force: true });
    await rm(home, { recursive: true, force: true });
    return problems;
  };

  return {
    home,
    port,
    apiUrl,
    projectId,
    key,
    client,
    output,
    env,
    up,
    stop,
    planePid: () => plane?.pid,
    request,
    pages,
    get: getService,
    until,
    create,
    operations,
    cli,
    audit: auditNow,
    destroy,
    caPem: () => readFile(join(home, 'ca', 'ca.pem'), 'utf8'),
  };
}

/** A connection as a user has it: TLS checked against our CA. The caller ends it. */
export async function connectTo(
  installation: Pick<Installation, 'caPem'>,
  service: Pick<Service, 'endpoint'>,
  password: string,
  more: { user?: string; database?: string } = {},
): Promise<Client> {
  const client = new Client({
    host: service.endpoint.host,
    port: service.endpoint.port,
    user: more.user ?? 'tsdbadmin',
    database: more.database ?? 'tsdb',
    password,
    ssl: { ca: await installation.caPem(), rejectUnauthorized: true },
  });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

async function isReady(port: number): Promise<boolean> {
  try {
    return (await fetch(`http://127.0.0.1:${port}/readyz`)).ok;
  } catch {
    return isReadyByTls(port); // or not listening yet
  }
}

/** Whose certificate it is, is the matter of the tests of TLS. */
async function isReadyByTls(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    get(
      { host: '127.0.0.1', port, path: '/readyz', rejectUnauthorized: false, agent: false },
      (response) => {
        response.resume();
        resolve(response.statusCode === 200);
      },
    ).on('error', () => resolve(false));
  });
}

/**
 * A block of ports below the range from which the system takes its own, for as long as this process lives: other installations of tests
 * leave it alone even while nothing listens there, as between two control planes. The first port is free now.
 */
async function claimPorts(): Promise<number> {
  for (;;) {
    const block = Math.floor(Math.random() * 165);
    const first = 10_000 + block * PORTS;
    // The name of a socket that is in no directory goes with the process that listens on it.
    if (!(await listens(createServer().unref(), `\0howdah-test-ports-${block}`))) continue;
    const probe = createServer();
    if (!(await listens(probe, first))) continue;
    await new Promise((resolve) => probe.close(resolve));
    return first;
  }
}

function listens(server: Server, at: string | number): Promise<boolean> {
  return new Promise((resolve) => {
    server.once('error', () => resolve(false)).once('listening', () => resolve(true));
    if (typeof at === 'string') server.listen(at);
    else server.listen(at, '127.0.0.1');
  });
}

function parseMaybe(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
