import { once } from 'node:events';
import { createServer } from 'node:net';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { problemOfHome, readSettings as readVariables } from '@howdah/client/node';
import { quotedWord } from '@howdah/contract/shell';
import { asError } from '@howdah/contract/thrown';
import type { Command } from 'commander';
import { EXIT_CODES, Failure } from '../exit.ts';
import { duration, paint, say } from '../output.ts';
import { verb } from '../command.ts';
import { formOf, ownCommand, ROOT } from '../installation-form.ts';
import { SETTINGS } from '../generated/settings.ts';
import { loadServer } from '../server.ts';

export function addUp(program: Command): void {
  const command = verb(program, 'up', {
    does:
      'Start Howdah on this machine, in the foreground. Ctrl-C stops the control plane; ' +
      'the databases keep running.',
    example: 'howdah up --port 8090',
  });
  for (const { flag, help } of SETTINGS) command.option(flag, help);
  command.action(async (options: Options) => up(options));
}

type Server = Awaited<ReturnType<typeof loadServer>>;
type Config = ReturnType<Server['readConfig']>;

/** true: the flag was given without a value. */
type Options = Readonly<Record<string, string | true>>;

async function up(options: Options): Promise<void> {
  const begun = performance.now();
  const server = await loadServer();
  const config = readSettings(server, options);
  const running = await server.findControl(config.home);
  if (running !== null) {
    say(`Howdah is up already: ${running.apiUrl} (process ${running.pid}). howdah down stops it.`);
    return;
  }
  // Before anything is created: a refused start leaves nothing behind.
  await refuseTakenPort(config);
  if (!config.localRegion) return runInCluster(server, config);
  const { log, path: logPath, reopen } = server.openLog(config.home);
  for (const name of REOPEN)
    process.on(name, () => {
      reopen();
      log.info({ path: logPath, signal: name }, 'the control log was opened again');
    });
  const plane = await server
    .startControlPlane(config, log, (step, ms) =>
      say(`${paint.green('✓')} ${step} ${paint.dim(duration(ms))}`),
    )
    .catch((error: unknown) => {
      log.error({ err: error }, 'the start failed');
      if (error instanceof server.ConfigError) throw new Failure(error.message, 'usage');
      throw isPortTaken(error) ? portTaken(config) : error;
    });
  say(`${paint.green('✓')} serving ${paint.dim(`after ${duration(performance.now() - begun)}`)}`);
  if (server.isInTheClear(config))
    say(
      `${paint.yellow('warning')} HOWDAH_TLS is off: ` +
        'keys and passwords are sent unencrypted, and can be read on the way to ' +
        `${config.host}:${config.port}`,
    );
  greet(plane.apiUrl, config.home, await plane.consoleLink(), {
    credentials: server.credentialsPath(config.home),
    log: logPath,
  });

  let stopping = false;
  const stop = async (): Promise<void> => {
    if (stopping) return;
    stopping = true;
    await plane.close();
    say(
      '\nThe control plane has stopped; the databases keep running. ' +
        'howdah up takes them over again, howdah down --databases stops them.',
    );
    process.exit(0);
  };
  process.on('SIGINT', () => void stop());
  process.on('SIGTERM', () => void stop());
  void plane.lost.then((problem) => {
    if (stopping) return;
    process.stderr.write(`error: ${problem}\n`);
    process.exit(EXIT_CODES.failed);
  });
}

/**
 * A control plane in a Kubernetes cluster: standard output is its control log. It may wait for
 * long, and the first process of a container ignores signals without a handler.
 */
async function runInCluster(server: Server, config: Config): Promise<void> {
  const log = server.openOutputLog();
  let end = async (): Promise<void> => undefined;
  const stop = (): void => void end().finally(() => process.exit(0));
  // Standard output is the control log: there is nothing to open again.
  for (const name of REOPEN) process.on(name, () => undefined);
  process.once('SIGINT', stop).once('SIGTERM', stop);
  try {
    const plane = await server.startControlPlane(config, log, (step, ms) =>
      log.info({ ms: Math.round(ms) }, step),
    );
    end = plane.close;
    log.info({ apiUrl: plane.apiUrl }, 'serving');
  } catch (error) {
    log.error({ err: error }, 'the start failed');
    throw error instanceof server.ConfigError ? new Failure(error.message, 'usage') : error;
  }
}

/**
 * Programs that rotate logs send one of them. Without a handler, Node ends by SIGHUP and SIGUSR2,
 * and opens a port for debuggers by SIGUSR1.
 */
const REOPEN = ['SIGHUP', 'SIGUSR1', 'SIGUSR2'] as const;

type Listening = { host: string; port: number };

/** A stopping control plane may hold the port a moment longer than its control.json exists. */
const PORT_DEADLINE_MS = 10_000;
const PORT_POLL_MS = 100;

/** @throws Failure when the API cannot listen there */
async function refuseTakenPort(where: Listening): Promise<void> {
  const deadline = performance.now() + PORT_DEADLINE_MS;
  for (;;) {
    const error = await errorOfListening(where);
    if (error === null) return;
    if (!isPortTaken(error))
      throw new Failure(
        `the API cannot listen on port ${where.port} of ${where.host}: ${error.message}; ` +
          'choose others with --host and --port',
      );
    if (performance.now() > deadline) throw portTaken(where);
    await sleep(PORT_POLL_MS);
  }
}

async function errorOfListening({ host, port }: Listening): Promise<Error | null> {
  const probe = createServer().listen({ host, port });
  try {
    await once(probe, 'listening');
    return null;
  } catch (error) {
    return asError(error);
  } finally {
    probe.close();
  }
}

function isPortTaken(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EADDRINUSE';
}

function portTaken({ host, port }: Listening): Failure {
  return new Failure(
    `port ${port} of ${host} is taken by another program: end it, or choose another port: ` +
      `howdah up --port ${port + 10}`,
  );
}

function readSettings(server: Server, options: Options) {
  try {
    const flags = Object.fromEntries(
      SETTINGS.flatMap(({ name, flag }) => {
        const [long = ''] = flag.split(' ');
        const value =
          options[
            long.slice(2).replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())
          ];
        return value === undefined ? [] : [[name, value === true ? 'yes' : value]];
      }),
    );
    const config = server.readConfig(readVariables(process.env), flags);
    const problem = problemOfHome(config.home);
    if (problem !== null) throw new Failure(problem, 'usage');
    return config;
  } catch (error) {
    if (error instanceof server.ConfigError) throw new Failure(error.message, 'usage');
    throw error;
  }
}

function greet(
  apiUrl: string,
  home: string,
  consoleUrl: string,
  paths: { credentials: string; log: string },
): void {
  // The command is pasted into another terminal, which does not have this environment.
  const isUsual = home === join(homedir(), '.howdah') || ['deb', 'image'].includes(formOf(ROOT));
  const setting = isUsual ? '' : `HOWDAH_HOME=${quotedWord(home)} `;
  const command = `${setting}${ownCommand(ROOT, process.env['PATH'] ?? '')}`;
  say(`
${paint.bold('Howdah is up.')}
  console      ${paint.cyan(consoleUrl)}
  API          ${apiUrl}
  reference    ${apiUrl}/reference
  credentials  ${paths.credentials}
  log          ${paths.log}

Make a database:
  ${command} service create --name first

${END_OF[formOf(ROOT) === 'image' ? 'container' : 'process']}`);
}

/** The entry point of the image stops the databases with the container. */
const END_OF = {
  process: 'Ctrl-C stops the control plane; the databases keep running.',
  container: 'The end of the container stops the databases, too; the volume keeps them.',
} as const;
