/** `howdah lease`: copies of a service for tests are taken, kept by a command, and returned. */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { HowdahError, NoAnswerError, type Schemas } from '@howdah/client';
import { LEASE_RESETS, type LeaseReset } from '@howdah/contract/values';
import { Option, type Command } from 'commander';
import { urlOf, variablesOf, type Address } from '../address.ts';
import { countOf, given, noun, verb, type Printing } from '../command.ts';
import { answered, connect, findCa, type Connection } from '../connection.ts';
import { Failure } from '../exit.ts';
import { findService, ofProject } from '../find.ts';
import { dateAndDistance, secondsOf } from '../moment.ts';
import { note, say, showAs, showList, type Variables } from '../output.ts';
import { LEASE_VIEW } from '../views.ts';

type Lease = Schemas['Lease'];
type Options = Printing & { count: string; ttl?: string; reset: LeaseReset };

/** With a command, leases are extended while it runs: this is how long they outlive its death. */
const KEPT_TTL_SECONDS = 120;
/** How long leases may take to be ready. */
const READY_WITHIN_MS = 60_000;
const POLL_MS = 250;

export function addLease(program: Command): void {
  const lease = noun(program, 'lease', 'Take copies of a service for tests, and return them.');
  addTake(lease);
  verb(lease, 'list', {
    does: 'List the leases.',
    example: 'howdah lease list',
    takes: ['output'],
  }).action(async ({ output }: Printing) => {
    const connection = await connect();
    const leases = await answered(
      connection.client.GET('/projects/{project_id}/leases', { params: ofProject(connection) }),
    );
    await showList(output, leases, LEASE_VIEW);
  });
  verb(lease, 'get <lease>', {
    does: 'Show a lease.',
    example: 'howdah lease get k3v9x2m1qa',
    takes: ['output'],
  }).action(async (id: string, { output }: Printing) => {
    const connection = await connect();
    const found = await answered(
      connection.client.GET('/projects/{project_id}/leases/{lease_id}', {
        params: { path: { ...ofProject(connection).path, lease_id: id } },
      }),
    );
    await showList(output, [found], LEASE_VIEW);
  });
  verb(lease, 'extend <time> <lease...>', {
    does: 'Have leases end so long from now.',
    example: 'howdah lease extend 10m k3v9x2m1qa',
    takes: ['output'],
  }).action(async (text: string, ids: string[], { output }: Printing) => {
    const connection = await connect();
    const left = await extend(connection, ids, secondsOf('time', text));
    const gone = ids.filter((id) => left.every((one) => one.id !== id));
    if (gone.length > 0) throw new Failure(`these have ended: ${gone.join(', ')}`, 'notFound');
    await showList(output, left, LEASE_VIEW);
  });
  verb(lease, 'return <lease...>', {
    does: 'Return leases: their data is gone for good.',
    example: 'howdah lease return k3v9x2m1qa',
  }).action(async (ids: string[]) => {
    const connection = await connect();
    const ended =
      ids.length === 1 ? await endOne(connection, ids[0] ?? '') : await end(connection, ids);
    note(`returned: ${ended.map(({ id }) => id).join(', ') || 'none, they had ended'}`);
  });
}

function addTake(lease: Command): void {
  verb(lease, 'take <service> [command...]', {
    does:
      'Take copies of a service. With a command, it runs with DATABASE_URL in its environment, ' +
      'and the leases are returned when it ends, whatever the end.',
    example: 'howdah lease take orders -- npm test',
    takes: ['output'],
  })
    .option('--count <number>', 'how many; a command finds them in DATABASE_URL_1, …', '1')
    .option(
      '--ttl <time>',
      'they are returned so long after they were taken; default: 10m, with a command 2m after ' +
        'it was killed',
    )
    .addOption(
      new Option(
        '--reset <what>',
        'server: each is a server of its own; database: a database in a server that they share',
      )
        .choices(LEASE_RESETS)
        .default('server' as const),
    )
    .action(async (wanted: string, words: string[], options: Options) => {
      const connection = await connect({ retries: 4 });
      const ttlSeconds = options.ttl === undefined ? undefined : secondsOf('--ttl', options.ttl);
      const { service_id: from } = await findService(connection, wanted);
      const body = {
        from,
        count: countOf('--count', options.count),
        reset: options.reset,
        ...given('ttl_seconds', words.length > 0 ? (ttlSeconds ?? KEPT_TTL_SECONDS) : ttlSeconds),
      };
      const leases = await take(connection, body);
      const ca = await findCa(connection.apiUrl);
      if (words.length > 0) {
        const keptSeconds = body.ttl_seconds ?? KEPT_TTL_SECONDS;
        process.exitCode = await runWith(connection, leases, ca, { words, keptSeconds });
        return;
      }
      await showAs(
        options.output,
        leases,
        LEASE_VIEW.noun,
        () => showTaken(leases, ca),
        variablesFor(leases, ca),
      );
    });
}

function showTaken(leases: readonly Lease[], ca: string | null): void {
  for (const lease of leases) say(urlOf(addressOf(lease, ca)));
  const [first] = leases;
  if (first?.expires_at !== undefined)
    note(
      `returned at ${dateAndDistance(first.expires_at)}, or by ` +
        `howdah lease return ${leases.map(({ id }) => id).join(' ')}`,
    );
}

/** Takes leases, and waits until they are ready. Those that are not are returned. */
async function take(connection: Connection, body: Schemas['TakeLeases']): Promise<Lease[]> {
  const { leases } = await answered(
    connection.client.POST('/projects/{project_id}/leases', {
      params: ofProject(connection),
      body,
    }),
  );
  const passwords = new Map(leases.map((one) => [one.id, one.initial_password]));
  const endMs = Date.now() + READY_WITHIN_MS;
  for (let now = leases; ; now = await readLeases(connection, leases)) {
    const late = now.filter(({ ready }) => !ready);
    if (late.length === 0 && now.length === leases.length)
      return now.map((one) => ({ ...one, ...given('initial_password', passwords.get(one.id)) }));
    if (Date.now() < endMs && now.length === leases.length) {
      await sleep(POLL_MS);
      continue;
    }
    await end(
      connection,
      leases.map(({ id }) => id),
    );
    const why = late.flatMap(({ problem }) => problem ?? [])[0];
    throw new Failure(
      `${late.length} of ${leases.length} leases were not ready within ` +
        `${READY_WITHIN_MS / 1000} s, and all were returned${why === undefined ? '' : `: ${why}`}`,
      'timedOut',
    );
  }
}

async function readLeases(connection: Connection, of: readonly Lease[]): Promise<Lease[]> {
  const all = await answered(
    connection.client.GET('/projects/{project_id}/leases', { params: ofProject(connection) }),
  );
  const byId = new Map(all.map((one) => [one.id, one]));
  return of.flatMap(({ id }) => byId.get(id) ?? []);
}

async function extend(
  connection: Connection,
  ids: readonly string[],
  ttlSeconds: number,
): Promise<Lease[]> {
  const { leases } = await answered(
    connection.client.POST('/projects/{project_id}/leases/extend', {
      params: ofProject(connection),
      body: { lease_ids: [...ids], ttl_seconds: ttlSeconds },
    }),
  );
  return leases;
}

async function end(connection: Connection, ids: readonly string[]): Promise<Lease[]> {
  const { leases } = await answered(
    connection.client.POST('/projects/{project_id}/leases/return', {
      params: ofProject(connection),
      body: { lease_ids: [...ids] },
    }),
  );
  return leases;
}

async function endOne(connection: Connection, id: string): Promise<Lease[]> {
  const { leases } = await answered(
    connection.client.DELETE('/projects/{project_id}/leases/{lease_id}', {
      params: { path: { ...ofProject(connection).path, lease_id: id } },
    }),
  );
  return leases;
}

const addressOf = (lease: Lease, ca: string | null): Address => ({
  ...lease.endpoint,
  user: lease.role,
  database: lease.database,
  ...given('password', lease.initial_password),
  ca,
});

/** The variables of libpq are those of the first lease. */
function variablesFor(leases: readonly Lease[], ca: string | null): Variables {
  const addresses = leases.map((lease) => addressOf(lease, ca));
  const [first] = addresses;
  const urls = addresses.map((address, index) => [`DATABASE_URL_${index + 1}`, urlOf(address)]);
  return {
    ...(first === undefined ? {} : variablesOf(first)),
    ...(addresses.length > 1 ? Object.fromEntries(urls) : {}),
  };
}

/** Signals that end the command; it decides what it does with them. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Whether Ctrl-C in a terminal reaches this program and its command. The standard input shows that
 * only where Linux does not: a command may read a file, and yet be in the foreground.
 */
function isInForeground(): boolean {
  try {
    // PROC_PID_STAT(5): behind the name are the state, the parent, the group, the session, the
    // terminal, and the group in its foreground.
    const stat = readFileSync('/proc/self/stat', 'utf8');
    const [, , group, , , foreground] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return group === foreground;
  } catch {
    return process.stdin.isTTY;
  }
}

/**
 * Runs a command with leases, which are extended while it runs and returned when it has ended.
 *
 * @returns its exit code, as a shell has it
 */
async function runWith(
  connection: Connection,
  leases: readonly Lease[],
  ca: string | null,
  { words: [program = '', ...args], keptSeconds }: { words: string[]; keptSeconds: number },
): Promise<number> {
  const ids = leases.map(({ id }) => id);
  const env = { ...process.env, ...variablesFor(leases, ca) };
  const ended = new AbortController();
  const keeping = keepExtending(connection, ids, keptSeconds, ended.signal);
  // Many commands stop at once at a second SIGINT.
  const forwards = SIGNALS.map((signal) => {
    const forward = (): void => {
      if (signal !== 'SIGINT' || !isInForeground()) child?.kill(signal);
    };
    return [signal, forward] as const;
  });
  for (const [signal, forward] of forwards) process.on(signal, forward);
  let child: ChildProcess | undefined;
  try {
    child = start(program, args, env);
    return await exitCodeOf(program, child);
  } finally {
    ended.abort();
    await keeping;
    await end(connection, ids).catch((error: unknown) => {
      if (!(error instanceof HowdahError || error instanceof NoAnswerError)) throw error;
      note(`the leases were not returned, and end within ${keptSeconds} s: ${error.message}`);
    });
    for (const [signal, forward] of forwards) process.off(signal, forward);
  }
}

const notRun = (program: string, { message }: Error): Failure =>
  new Failure(`${program} was not run: ${message}`, 'usage');

/** Starts a command. Some problems are thrown, others are events of the child. */
function start(program: string, args: string[], env: NodeJS.ProcessEnv): ChildProcess {
  try {
    return spawn(program, args, { stdio: 'inherit', env });
  } catch (error) {
    throw error instanceof Error ? notRun(program, error) : error;
  }
}

function exitCodeOf(program: string, child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    // A signal that was not sent is such an event as well.
    child.on('error', (error) => {
      if (child.pid === undefined) reject(notRun(program, error));
    });
    child.once('exit', (code, signal) =>
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal])),
    );
  });
}

/** Extends leases three times in their lifetime, until `ended`. */
async function keepExtending(
  connection: Connection,
  ids: readonly string[],
  ttlSeconds: number,
  ended: AbortSignal,
): Promise<void> {
  while (!ended.aborted) {
    await sleep((ttlSeconds * 1000) / 3, undefined, { signal: ended, ref: false }).catch(
      () => undefined,
    );
    if (ended.aborted) return;
    try {
      await extend(connection, ids, ttlSeconds);
    } catch (error) {
      if (!(error instanceof HowdahError || error instanceof NoAnswerError)) throw error;
      note(`the leases were not extended: ${error.message}`);
    }
  }
}
