/**
 * The action: forks a service for a pull request, has it migrated, says what changed, and deletes
 * the fork with the pull request. It runs from its source, without a build and without packages.
 */
import { spawn } from 'node:child_process';
import { createHmac, randomBytes } from 'node:crypto';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { keepComment, type PullRequest } from './comment.ts';

/** `howdah` ends with these when there is no such service, and when its key may not do that. */
const NOT_FOUND = 3;
const NOT_ALLOWED = 4;
/** GitHub refuses comments of more than 65 536 characters. */
const MOST_OF_DIFF = 60_000;

type Outcome = { code: number; stdout: string };

/** An input of action.yml, as the runner passes it. */
const input = (name: string): string => (process.env[`INPUT_${name.toUpperCase()}`] ?? '').trim();

function required(name: string): string {
  const value = input(name);
  if (value !== '') return value;
  // GitHub gives no secrets to pull requests from other repositories.
  const secrets = name === 'key' ? ', which pull requests from forks of a repository lack' : '';
  throw new Error(`the input ${name} is empty${secrets}`);
}

/** Writes a line into the log; the runner reads those like `::add-mask::`. */
const say = (line: string): void => void process.stdout.write(`${line}\n`);

const field = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;

const text = (value: unknown, name: string): string => {
  const found = field(value, name);
  return typeof found === 'string' ? found : '';
};

/** @throws Error: the event is not that of a pull request */
function readPullRequest(): PullRequest & Readonly<{ action: string }> {
  const event: unknown = JSON.parse(readFileSync(process.env['GITHUB_EVENT_PATH'] ?? '', 'utf8'));
  const number = field(field(event, 'pull_request'), 'number');
  if (typeof number !== 'number')
    throw new Error(
      `the event ${process.env['GITHUB_EVENT_NAME'] ?? ''} has no pull request: ` +
        'run this action in a workflow with `on: pull_request`',
    );
  return {
    action: text(event, 'action'),
    number,
    repository: process.env['GITHUB_REPOSITORY'] ?? '',
    apiUrl: process.env['GITHUB_API_URL'] ?? 'https://api.github.com',
    token: input('token'),
  };
}

/**
 * Runs a command line in a shell. Its standard error goes into the log.
 *
 * @param words further words of the line, which reach the program as they are
 */
async function run(
  line: string,
  words: readonly string[],
  { env, stdin, output }: { env: NodeJS.ProcessEnv; stdin: string; output: 'read' | 'shown' },
): Promise<Outcome> {
  const child = spawn('/bin/sh', ['-ec', line, 'sh', ...words], {
    env,
    stdio: ['pipe', output === 'shown' ? 'inherit' : 'pipe', 'inherit'],
  });
  child.stdin?.on('error', () => undefined).end(stdin);
  let stdout = '';
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => (stdout += chunk));
  const code = await new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => resolve(status ?? 1));
  });
  return { code, stdout };
}

type Howdah = (words: readonly string[], stdin?: string) => Promise<Outcome>;

/** @throws Error: it failed, and has said why */
async function succeed(howdah: Howdah, words: readonly string[], stdin?: string): Promise<string> {
  const { code, stdout } = await howdah(words, stdin);
  if (code === 0) return stdout;
  throw new Error(`howdah ${words.slice(0, 3).join(' ')} ended with ${code}`);
}

type Fork = Readonly<{ id: string; variables: Readonly<Record<string, string>> }>;

/** Makes the fork, or takes the one of an earlier push. @param ca the path of its CA; '': none */
async function forkFor(howdah: Howdah, service: string, name: string, ca: string): Promise<Fork> {
  const ttl = input('ttl');
  const found = await howdah(['service', 'get', name, '-o', 'json']);
  if (found.code === NOT_FOUND) {
    const fork = ['service', 'fork', service, '--name', name, '--ttl', ttl, '-o', 'json'];
    found.stdout = await succeed(howdah, fork);
  } else {
    if (found.code !== 0) throw new Error(`howdah service get ended with ${found.code}`);
    if (input('reset') === 'true') await succeed(howdah, ['service', 'reset', name, '--yes']);
    await succeed(howdah, ['service', 'set-expiry', name, `+${ttl}`]);
  }
  // Nobody has kept the password of an earlier push.
  const password = randomBytes(18).toString('hex');
  say(`::add-mask::${password}`);
  await succeed(howdah, ['service', 'set-password', name], `${password}\n`);
  return readFork(JSON.parse(found.stdout), password, ca);
}

/** @param service as the API answers */
function readFork(service: unknown, password: string, ca: string): Fork {
  const endpoint = field(service, 'vpc_endpoint') ?? field(service, 'endpoint');
  const variables = {
    PGHOST: text(endpoint, 'host'),
    PGPORT: String(field(endpoint, 'port')),
    PGUSER: 'tsdbadmin',
    PGPASSWORD: password,
    PGDATABASE: 'tsdb',
    ...(ca === '' ? { PGSSLMODE: 'require' } : { PGSSLMODE: 'verify-full', PGSSLROOTCERT: ca }),
  };
  const { PGHOST: host, PGPORT: port, PGSSLMODE: mode } = variables;
  const url =
    `postgres://tsdbadmin:${password}@${host.includes(':') ? `[${host}]` : host}:${port}` +
    `/tsdb?sslmode=${mode}${ca === '' ? '' : `&sslrootcert=${encodeURIComponent(ca)}`}`;
  return { id: text(service, 'service_id'), variables: { ...variables, DATABASE_URL: url } };
}

function setOutput(name: string, value: string): void {
  const end = randomBytes(8).toString('hex');
  appendFileSync(process.env['GITHUB_OUTPUT'] ?? '', `${name}<<${end}\n${value}\n${end}\n`);
}

/** @returns the schema of the fork beside that of the service, as lines of a diff */
async function diffOf(howdah: Howdah, service: string, name: string): Promise<string> {
  const { code, stdout } = await howdah(['service', 'diff', name]);
  if (code === 0) return stdout;
  if (code !== NOT_ALLOWED) throw new Error(`howdah service diff ended with ${code}`);
  say(`This key reads only forks that it made: a lease of ${service} is compared instead.`);
  const take = ['lease', 'take', service, '--ttl', '15m', '-o', 'json'];
  const leases: unknown = JSON.parse(await succeed(howdah, take));
  const lease = text(Array.isArray(leases) ? leases[0] : undefined, 'id');
  try {
    return await succeed(howdah, ['service', 'diff', name, lease]);
  } finally {
    await succeed(howdah, ['lease', 'return', lease]);
  }
}

/** @returns what the comment says about a fork */
function commentOn(name: string, service: string, migrated: boolean | null, diff: string): string {
  const lines = [`**${name}** is a copy of the database \`${service}\` for this pull request.`];
  if (migrated === false) lines.push('The migration **failed**; the log of the job says why.');
  const shown = diff.length > MOST_OF_DIFF ? `${diff.slice(0, MOST_OF_DIFF)}\n…` : diff;
  // No name in the database ends the block.
  const fence = '`'.repeat(
    Math.max(3, ...[...shown.matchAll(/`+/g)].map(([ticks]) => ticks.length + 1)),
  );
  lines.push(`What it has and \`${service}\` has not, and the reverse:`);
  lines.push(`${fence}diff\n${shown.trimEnd()}\n${fence}`);
  return lines.join('\n\n');
}

/** The environment of the job, such as its proxy, without the inputs of the action. */
function environment(): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith('INPUT_'));
  return Object.fromEntries(own);
}

/** Runs the migration, without the secrets of the action. @returns null: there is none */
async function migrate({ variables }: Fork): Promise<boolean | null> {
  const line = input('migrate');
  if (line === '') return null;
  const env = { ...environment(), ...variables };
  return (await run(line, [], { env, stdin: '', output: 'shown' })).code === 0;
}

/** @returns the path of the CA of the installation, which later steps of the job read too */
function writeCa(): string {
  const pem = input('ca');
  if (pem === '') return '';
  const path = join(process.env['RUNNER_TEMP'] ?? tmpdir(), 'howdah-ca.pem');
  writeFileSync(path, `${pem}\n`);
  return path;
}

async function serve(): Promise<void> {
  const pullRequest = readPullRequest();
  const service = required('service');
  const [, repository = 'repository'] = pullRequest.repository.split('/');
  const name = `${service}@${repository}-${pullRequest.number}`;
  const [line, key, ca] = [required('howdah'), required('key'), writeCa()];
  say(`::add-mask::${key}`);
  const env: NodeJS.ProcessEnv = {
    ...environment(),
    NO_COLOR: '1',
    HD_API: required('api-url'),
    HD_KEY: key,
    HD_PROJECT: required('project'),
    ...(ca === '' ? {} : { HD_CA: ca }),
  };
  const howdah: Howdah = (words, stdin = '') =>
    run(`${line} "$@"`, words, { env, stdin, output: 'read' });
  if (pullRequest.action === 'closed') {
    const { code } = await howdah(['service', 'delete', name, '--yes']);
    if (code !== 0 && code !== NOT_FOUND) throw new Error(`the fork ${name} was not deleted`);
    return;
  }
  const fork = await forkFor(howdah, service, name, ca);
  setOutput('url', fork.variables['DATABASE_URL'] ?? '');
  setOutput('name', name);
  setOutput('service-id', fork.id);
  const isMigrated = await migrate(fork);
  if (input('comment') === 'true') {
    const diff = await diffOf(howdah, service, name);
    // A mark that nobody can write before: a comment of others cannot be written again.
    const mark = createHmac('sha256', key).update(name).digest('hex');
    await keepComment(pullRequest, mark, commentOn(name, service, isMigrated, diff));
  }
  if (isMigrated === false) throw new Error('the migration failed');
}

try {
  await serve();
} catch (error) {
  const message = error instanceof Error ? error.message : String(error);
  say(`::error::${message.replaceAll(/\r?\n/g, ' ')}`);
  process.exitCode = 1;
}
