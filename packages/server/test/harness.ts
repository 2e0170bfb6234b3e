/**
 * A whole installation for a test: its own home, ports and processes, started through the command
 * line that users have, with the tuning of the test (`up.mjs`). `destroy` ends it and checks that
 * nothing is left and that the metadata database agrees with the machine.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { get } from 'node:https';
import { chmod, mkdtemp, readFile, readlink, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { callerOf, type Service } from './harness-caller.ts';
import { checkIntegrity, readCredentials, type RoundName } from './probe.ts';
import { tuned } from './tuning.ts';
import { until } from './until.ts';

/** The command line, as it was built. */
export const HOWDAH = fileURLToPath(new URL('../../cli/dist/howdah.js', import.meta.url));
/** The same with the tuning of a test, for its control plane. */
const UP = fileURLToPath(new URL('up.mjs', import.meta.url));
/** Ports of one installation: the API's, then those for databases. */
export const PORTS = 128;
/** The integrity check finds something as often before it counts. */
const MOST_CHECKS = 200;

export type Installation = Awaited<ReturnType<typeof install>>;

/**
 * A directory for an installation, short and open: root's databases run as another user, who must
 * get there.
 */
export async function makeHome(): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), 'hd-'));
  await chmod(home, 0o755);
  return home;
}

/** Settings that load modules of this folder into the control plane before it starts. */
export const preload = (...modules: readonly string[]): Record<string, string> => ({
  NODE_OPTIONS: modules
    .map((module) => `--import ${new URL(module, import.meta.url).href}`)
    .join(' '),
});

/** The control plane of an installation. Its process changes with each start. */
type Plane = {
  port: number;
  env: Record<string, string>;
  within: readonly string[];
  output: string[];
  child: ChildProcess | null;
};

async function startPlane(plane: Plane): Promise<void> {
  const { port, env, within, output } = plane;
  const [program, ...words] = [...within, process.execPath, UP, 'up'] as const;
  const child = spawn(program, words, {
    env: { ...tuned({}), ...env },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  plane.child = child;
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => output.push(text));
  const begun = output.length;
  // Another program may answer at the port while this one ends with an error.
  const isOurs = (): boolean =>
    env['HOWDAH_LOCAL_REGION'] === 'no' || output.slice(begun).join('').includes('Howdah is up');
  const end = (): number | string | null => child.exitCode ?? child.signalCode;
  await until(
    'the control plane is ready',
    async () => end() !== null || (isOurs() && (await isReady(port))),
  );
  if (end() !== null) throw new Error(`howdah up ended with ${end()}: ${output.join('')}`);
}

/** Runs all rounds of a name in the control plane, and waits for their end. */
async function runRound({ child }: Plane, round: RoundName): Promise<void> {
  if (child === null) throw new Error(`no control plane runs the round ${round}`);
  const id = randomUUID();
  const answer = new Promise<string | null>((resolve, reject) => {
    const onMessage = (message: unknown): void => {
      if (!isAnswer(message) || message.id !== id) return;
      child.off('message', onMessage).off('exit', onExit);
      resolve(message.error);
    };
    const onExit = (): void => reject(new Error(`the control plane ended during ${round}`));
    child.on('message', onMessage).once('exit', onExit);
  });
  child.send({ id, round });
  const error = await answer;
  if (error !== null) throw new Error(error);
}

const isAnswer = (message: unknown): message is { id: string; error: string | null } =>
  typeof message === 'object' && message !== null && 'id' in message && 'error' in message;

/** Ends the control plane: in order, or as a crash would. The databases go on. */
async function stopPlane({ child }: Plane, name: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  if (child === null || child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill(name);
  await ended;
}

type Outcome = { code: number | null; stdout: string; stderr: string };

async function runCli(env: Record<string, string>, args: readonly string[]): Promise<Outcome> {
  const child = spawn(process.execPath, [HOWDAH, ...args], {
    env: { ...env, NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr] = [[] as string[], [] as string[]];
  child.stdout.setEncoding('utf8').on('data', (text: string) => stdout.push(text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => stderr.push(text));
  await once(child, 'close');
  return { code: child.exitCode, stdout: stdout.join(''), stderr: stderr.join('') };
}

/**
 * The findings that last: a process that is just ending counts as none of its server. Each check
 * takes its time, so that a slow machine waits longer.
 */
async function lasting(audit: () => Promise<string[]>): Promise<string[]> {
  let found: string[] = [];
  let checks = 0;
  await until('the integrity check finds nothing', async () => {
    found = await audit();
    checks += 1;
    return found.length === 0 || checks > MOST_CHECKS;
  });
  return found;
}

/** Removes all services of a project, and those that are deleted. */
async function purgeAll(
  { client, request }: ReturnType<typeof callerOf>,
  projectId: string,
): Promise<void> {
  const params = { path: { project_id: projectId } };
  const { data = [] } = await client.GET('/projects/{project_id}/services', { params });
  const { data: gone = [] } = await client.GET('/projects/{project_id}/deletedServices', {
    params,
  });
  for (const { service_id: id, name } of [...data, ...gone])
    await request('DELETE', `/services/${id}?purge=true&confirm=${encodeURIComponent(name)}`);
}

/** Stops an installation with its databases and removes its files. @returns what went wrong */
async function removeAll(
  plane: Plane,
  home: string,
  cli: (...args: string[]) => Promise<Outcome>,
): Promise<string[]> {
  await stopPlane(plane, 'SIGTERM');
  const { code, stderr } = await cli('down', '--databases');
  const data = await readlink(join(home, 'data')).catch(() => join(home, 'data'));
  await rm(data, { recursive: true, force: true });
  await rm(home, { recursive: true, force: true });
  return code === 0 ? [] : [`howdah down --databases failed: ${stderr}`];
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
  const plane: Plane = { port, env, within, output: [], child: null };
  await startPlane(plane);
  const credentials = await readCredentials(home);
  if (credentials === null) throw new Error('howdah up wrote no credentials');
  const { api_url: apiUrl, project_id: projectId } = credentials;
  const key = `${credentials.public_key}:${credentials.secret_key}`;

  const caller = callerOf({ apiUrl, projectId, key });

  const cli = (...args: string[]): Promise<Outcome> => runCli(env, args);

  /** The findings of the integrity check once nothing is under way. */
  const auditNow = (): Promise<string[]> =>
    checkIntegrity({ home, databaseUrl: settings['HOWDAH_DATABASE_URL'] ?? null });

  /**
   * Removes the services that a test has made or deleted, for good: they take processors and disk
   * from the next one. Findings of the integrity check before that are an error.
   */
  const tidy = async (): Promise<void> => {
    // Changes under way at the end of a test may look wrong for a moment.
    await until('nothing is under way or wrong', async () => {
      const problems = await auditNow();
      if (problems.length > 0) throw new Error(problems.join('\n'));
      return true;
    });
    await purgeAll(caller, projectId);
  };

  /**
   * Ends everything and removes it.
   *
   * @param isExpected findings that the test itself has caused: they would be waited for in vain
   * @returns the other findings of the integrity check before that
   */
  const destroy = async (
    isExpected: (finding: string) => boolean = () => false,
  ): Promise<string[]> => {
    const problems = await lasting(async () =>
      (await auditNow()).filter((finding) => !isExpected(finding)),
    );
    problems.push(...(await removeAll(plane, home, cli)));
    return problems;
  };

  return {
    ...caller,
    home,
    port,
    output: plane.output,
    env,
    up: () => startPlane(plane),
    stop: (name: 'SIGTERM' | 'SIGKILL') => stopPlane(plane, name),
    /** Runs a round now, `times` times. @returns when it has ended */
    round: async (name: RoundName, times = 1): Promise<void> => {
      for (let run = 0; run < times; run += 1) await runRound(plane, name);
    },
    planePid: () => plane.child?.pid,
    cli,
    audit: auditNow,
    tidy,
    destroy,
    caPem: () => readFile(join(home, 'ca', 'ca.pem'), 'utf8'),
  };
}

/** A connection as a user has it: TLS checked against our CA. The caller ends it. */
export async function connectTo(
  installation: Pick<Installation, 'caPem'>,
  service: Pick<Service, 'endpoint'>,
  password: string,
  more: { user?: string; database?: string; options?: string; replication?: 'database' } = {},
): Promise<Client> {
  const { options, replication } = more;
  const client = new Client({
    ...(options === undefined ? {} : { options }),
    ...(replication === undefined ? {} : { replication }),
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
 * A block of ports below the range from which the system takes its own, for as long as this process
 * lives: other installations of tests leave it alone even while nothing listens there, as between
 * two control planes. The first port is free now.
 */
export async function claimPorts(): Promise<number> {
  for (;;) {
    const block = Math.floor(Math.random() * 165);
    const first = 10_000 + block * PORTS;
    // The name of a socket that is in no directory goes with the process that listens on it.
    if (!(await listens(createServer().unref(), lockOf(block)))) continue;
    const probe = createServer();
    if (!(await listens(probe, first))) continue;
    await new Promise((resolve) => probe.close(resolve));
    return first;
  }
}

/**
 * The longest name that there can be: some releases of Node fill shorter ones up, so that two of
 * them would not see each other's.
 */
const lockOf = (block: number): string => `\0howdah-test-ports-${block}`.padEnd(108, '.');

function listens(server: Server, at: string | number): Promise<boolean> {
  return new Promise((resolve) => {
    server.once('error', () => resolve(false)).once('listening', () => resolve(true));
    if (typeof at === 'string') server.listen(at);
    else server.listen(at, '127.0.0.1');
  });
}
