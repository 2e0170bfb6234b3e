/**
 * The GitHub Action (deploy/github-action), run as the runner of GitHub runs it, with a stand-in
 * for the comments of GitHub.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { connectTo, HOWDAH, type Installation } from './harness.ts';
import { share } from './shared.ts';
import { until } from './until.ts';

const ACTION = fileURLToPath(new URL('../../../deploy/github-action/', import.meta.url));
const MIGRATION =
  `${process.execPath} --input-type=module -e '` +
  'import { Client } from "pg"; const client = new Client(process.env.DATABASE_URL); ' +
  'await client.connect(); await client.query("alter table items add column price int"); ' +
  "await client.end();'";

type Comment = { id: number; body: string };

/** The comments of the pull request. */
const comments: Comment[] = [];
async function answerAsGitHub(request: IncomingMessage, response: ServerResponse) {
  let body = '';
  for await (const chunk of request) body += String(chunk);
  const of = /^\/repos\/acme\/shop\/issues\/(comments\/)?(\d+)/.exec(request.url ?? '');
  const text = (): string => JSON.parse(body).body;
  const answer = (status: number, value: unknown) =>
    response.writeHead(status).end(JSON.stringify(value));
  if (request.headers.authorization !== 'Bearer of-the-job') return answer(403, 'refused');
  if (of === null) return answer(404, request.url);
  const known = comments.find(({ id }) => of[1] !== undefined && id === Number(of[2]));
  if (request.method === 'POST')
    return answer(201, comments[comments.push({ id: comments.length + 7, body: text() }) - 1]);
  if (request.method === 'PATCH' && known !== undefined)
    return answer(200, Object.assign(known, { body: text() }));
  return answer(200, comments);
}
const github = createServer((request, response) => void answerAsGitHub(request, response));

let cloud: Installation;
let key: string;
let ca: string;
let directory: string;
beforeAll(async () => {
  cloud = await share();
  directory = await mkdtemp(join(tmpdir(), 'hd-action-'));
  github.listen(0, '127.0.0.1');
  await once(github, 'listening');
  ca = await readFile(join(cloud.home, 'ca', 'ca.pem'), 'utf8');
  const made = await cloud.create({ name: 'shop', service_type: 'POSTGRES' });
  const client = await connectTo(cloud, made, made.initial_password);
  await client.query('create table items as select generate_series(1, 100) as id');
  await client.end();
  const { data } = await cloud.client.POST('/projects/{project_id}/keys', {
    params: { path: { project_id: cloud.projectId } },
    body: { name: 'ci', role: 'developer', fork_only: true },
  });
  key = data === undefined ? '' : `${data.public_key}:${data.secret_key}`;
});
afterAll(async () => {
  github.close();
  await rm(directory, { recursive: true });
  expect(await cloud?.destroy()).toEqual([]);
});

/** The inputs of a workflow, with the defaults of action.yml, as the runner passes them. */
async function inputs(given: Record<string, string>): Promise<Record<string, string>> {
  const { inputs: known } = parse(await readFile(join(ACTION, 'action.yml'), 'utf8'));
  const named = Object.entries<{ default?: string }>(known).map(([name, one]) => [
    `INPUT_${name.toUpperCase()}`,
    given[name] ?? one.default?.replace(/^\$\{\{.*\}\}$/, 'of-the-job') ?? '',
  ]);
  return Object.fromEntries(named);
}

/** Runs the action for an event. @returns its log without what the runner masks */
async function act(
  action: string,
  given: Record<string, string> = {},
  env: Record<string, string> = {},
) {
  const { apiUrl, projectId: project } = cloud;
  const [event, output] = [join(directory, 'event.json'), join(directory, 'output')];
  await writeFile(event, JSON.stringify({ action, pull_request: { number: 17 } }));
  await writeFile(output, '');
  const howdah = `'${process.execPath}' '${HOWDAH}'`;
  const address = github.address();
  const port = typeof address === 'object' ? address?.port : 0;
  const child = spawn(process.execPath, ['--import', 'tsx', join(ACTION, 'main.ts')], {
    env: {
      ...(await inputs({ service: 'shop', 'api-url': apiUrl, key, ca, project, howdah, ...given })),
      PATH: process.env['PATH'],
      HOME: directory,
      RUNNER_TEMP: directory,
      GITHUB_API_URL: `http://127.0.0.1:${port}`,
      GITHUB_EVENT_PATH: event,
      GITHUB_OUTPUT: output,
      GITHUB_REPOSITORY: 'acme/shop',
      ...env,
    },
  });
  let log = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (log += text));
  await once(child, 'close');
  const masks = [...log.matchAll(/^::add-mask::(.*)$/gm)].map(([, secret]) => secret ?? '');
  const shown = masks.reduce((text, secret) => text.replaceAll(secret, '***'), log);
  const written = await readFile(output, 'utf8');
  const outputs = written.matchAll(/^(.+)<<(.+)\n([^]*?)\n\2$/gm);
  return {
    code: child.exitCode,
    shown,
    outputs: Object.fromEntries([...outputs].map(([, name, , value]) => [name, value ?? ''])),
  };
}

async function rowsIn(url: string | undefined, sql: string): Promise<unknown[]> {
  const client = new Client(url);
  await client.connect();
  const { rows } = await client.query({ text: sql, rowMode: 'array' });
  await client.end();
  return rows.flat();
}

test('a pull request has a fork and a comment, and leaves nothing', async () => {
  const opened = await act('opened', { migrate: MIGRATION });
  expect(opened.code, opened.shown).toBe(0);
  const { url = '', name, 'service-id': id } = opened.outputs;
  expect(name).toBe('shop@shop-17');
  expect(opened.shown).not.toContain(new URL(url).password);
  expect(opened.shown).not.toContain(key);
  expect(await rowsIn(url, 'select count(price), count(*)::int from items')).toEqual(['0', 100]);
  const shown = expect.stringContaining('+ column public.items.price');
  expect(comments.map(({ body }) => body)).toEqual([shown]);

  // The next push: the same fork and comment, a new password.
  await rowsIn(url, 'delete from items');
  const pushed = await act('synchronize');
  expect(pushed.code, pushed.shown).toBe(0);
  expect(pushed.outputs).toMatchObject({ name, 'service-id': id });
  await expect(rowsIn(url, 'select 1')).rejects.toThrow('password');
  expect(await rowsIn(pushed.outputs['url'], 'select count(*)::int from items')).toEqual([0]);
  expect(comments).toHaveLength(1);

  const reset = await act('synchronize', { reset: 'true', comment: 'false' });
  expect(reset.code, reset.shown).toBe(0);
  expect(await rowsIn(reset.outputs['url'], 'select count(*)::int from items')).toEqual([100]);

  const closed = await act('closed');
  expect(closed.code, closed.shown).toBe(0);
  await until('the fork is gone', async () => {
    return (await cloud.request('GET', `/services/${id}`)).status === 404;
  });
  // A job that ran twice.
  expect((await act('closed')).code).toBe(0);
});

test('a migration that fails, and what is missing, make the job red and say why', async () => {
  const failed = await act('opened', { migrate: 'echo of the migration >&2; exit 3' });
  expect([failed.code, failed.shown]).toEqual([1, expect.stringContaining('of the migration')]);
  expect(failed.shown).toContain('::error::the migration failed');
  expect(comments.at(-1)?.body).toContain('**failed**');
  for (const [given, reason] of [
    [{ key: '' }, 'pull requests from forks'],
    [{ service: 'shoe' }, 'shoe'],
    [{ token: 'another' }, 'permissions: pull-requests: write'],
  ] as const) {
    const { code, shown } = await act('opened', given);
    expect([code, shown]).toEqual([1, expect.stringContaining(reason)]);
  }
  const alone = await act('opened', {}, { GITHUB_API_URL: 'http://127.0.0.1:2' });
  expect([alone.code, alone.shown]).toEqual([1, expect.stringContaining('ECONNREFUSED')]);
});
