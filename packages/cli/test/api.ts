/**
 * An API whose answers are known: over HTTP, for the built command line. Requests and answers are
 * checked against the OpenAPI document.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { fileURLToPath } from 'node:url';
import { ajv, problemOf, ROUTES, type Route } from '../../server/test/document.ts';
import { ANSWERS, PLAN, type Answer } from './answers.ts';

export const HOWDAH = fileURLToPath(new URL('../dist/howdah.js', import.meta.url));
const BASE = '/public/api/v1';

/** The name of the answer to every dry run. */
export const DRY_RUN = 'dry run';

export type Outcome = { code: number | null; stdout: string; stderr: string };

/** @param answers in place of those that are known, by the name of the call */
export async function serve(answers: Readonly<Record<string, Answer>> = {}) {
  const called: string[] = [];
  const changed: string[] = [];
  const paths: string[] = [];
  const problems: string[] = [];
  const server = createServer((request, response) => {
    const answerTo = async (): Promise<void> => {
      const body = await readBody(request);
      const url = new URL(request.url ?? '', 'http://api');
      const route = routeOf(request.method ?? '', url.pathname.slice(BASE.length));
      if (route === null)
        return send(response, {
          status: 404,
          body: { code: 'NOT_FOUND', message: 'no such path', request_id: 'r' },
        });
      called.push(route.operationId);
      paths.push(url.pathname);
      problems.push(...problemsOf(route, url, body));
      const isPlan = route.changes && url.searchParams.get('dry_run') === 'true';
      if (route.changes && !isPlan) changed.push(route.operationId);
      const answer = isPlan
        ? (answers[DRY_RUN] ?? { status: 200, body: PLAN })
        : (answers[route.operationId] ?? ANSWERS[route.operationId]);
      if (answer === undefined) throw new Error(`no answer for ${route.operationId}`);
      const problem = problemOf(
        route,
        answer.status,
        answer.body === undefined ? '' : JSON.stringify(answer.body),
      );
      if (problem !== null && answer.text === undefined) problems.push(problem);
      if (isPlan) response.setHeader('Dry-Run', 'true');
      send(response, answer);
    };
    void answerTo();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const apiUrl = `http://127.0.0.1:${address.port}${BASE}`;
  const env = {
    HD_API: apiUrl,
    HD_PROJECT: `${apiUrl}/projects/n765kku04j`,
    HD_KEY: 'HDpublic:secret',
  };
  return {
    apiUrl,
    env,
    /** The calls that came, by their names. */
    called,
    /** The paths of these calls. */
    paths,
    /** Those of them that changed something: not those that only asked what would be done. */
    changed,
    /** The requests and answers that the document does not allow. */
    problems,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Runs the built command line to its end. */
export async function howdah(
  args: readonly string[],
  env: Record<string, string>,
  input = '',
): Promise<Outcome> {
  const child = spawn(process.execPath, [HOWDAH, ...args], {
    env: { PATH: process.env['PATH'] ?? '', ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: 800_000, // what hangs must not outlive the test
  });
  child.stdin.on('error', () => undefined).end(input);
  const said = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said.stderr += text));
  await once(child, 'close');
  return { code: child.exitCode, ...said };
}

function problemsOf({ operationId, body: schema, query }: Route, url: URL, body: string): string[] {
  const unknown = [...url.searchParams.keys()].filter(
    (name) => !query.some((parameter) => parameter.name === name),
  );
  const problems = unknown.map((name) => `${operationId}: no parameter ${name}`);
  if (schema === null)
    return body === '' ? problems : [...problems, `${operationId} takes no body: ${body}`];
  const { $ref: reference } = schema;
  // The server would ignore a field that it does not know.
  const check = ajv.compile({
    ...(typeof reference === 'string' ? { $ref: `api${reference}` } : schema),
    unevaluatedProperties: false,
  });
  return check(JSON.parse(body || 'null'))
    ? problems
    : [...problems, `${operationId}: ${ajv.errorsText(check.errors)} in ${body}`];
}

function routeOf(method: string, path: string): Route | null {
  const matches = (pattern: string): boolean =>
    new RegExp(`^${pattern.replaceAll(/\{[a-z_]+\}/g, '[^/]+')}$`).test(path);
  return ROUTES.find((route) => route.method === method && matches(route.path)) ?? null;
}

function send(
  response: ServerResponse,
  { status, body, text, operation, cookie, warning }: Answer,
): void {
  if (operation === true) response.setHeader('Operation-Id', '01jd3k7w0c');
  if (cookie !== undefined) response.setHeader('Set-Cookie', cookie);
  if (warning !== undefined) response.setHeader('Warning', warning);
  response.setHeader('Connection', 'close');
  if (body !== undefined) response.setHeader('Content-Type', 'application/json');
  response.writeHead(status).end(text ?? (body === undefined ? undefined : JSON.stringify(body)));
}

async function readBody(request: IncomingMessage): Promise<string> {
  const parts: string[] = [];
  for await (const part of request.setEncoding('utf8')) parts.push(String(part));
  return parts.join('');
}
