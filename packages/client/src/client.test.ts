import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import {
  createClient,
  DryRunError,
  HowdahError,
  NoAnswerError,
  waitFor,
  WaitError,
} from './index.ts';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** Answers one request after the other as they are given, the last again and again. */
async function serve(...answers: Answer[]) {
  const seen: {
    method: string | undefined;
    url: string | undefined;
    key: string | undefined;
    body: string;
  }[] = [];
  const server = createServer((request, response) => {
    const parts: string[] = [];
    request.setEncoding('utf8').on('data', (part: string) => parts.push(part));
    request.on('end', () => {
      const header = request.headers['idempotency-key'];
      seen.push({
        method: request.method,
        url: request.url,
        key: typeof header === 'string' ? header : undefined,
        body: parts.join(''),
      });
      (answers[Math.min(seen.length, answers.length) - 1] ?? json(500, {}))(request, response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return { seen, apiUrl: `http://127.0.0.1:${address.port}`, close: () => server.close() };
}

/** As {@link serve}, for a server that has no stream of events. */
async function serveStatuses(...answers: Answer[]) {
  let next = 0;
  return serve((request, response) => {
    if (request.url?.endsWith('/events') === true)
      return json(404, { code: 'NOT_FOUND', message: 'no such path' })(request, response);
    return (answers[Math.min(next++, answers.length - 1)] ?? cut)(request, response);
  });
}

const json =
  (status: number, body: unknown, headers: Record<string, string> = {}): Answer =>
  (_request, response) =>
    response
      .writeHead(status, { 'Content-Type': 'application/json', Connection: 'close', ...headers })
      .end(JSON.stringify(body));
const cut: Answer = (request) => request.socket.destroy();
const service = (status: string) => json(200, { service_id: 's', project_id: 'p', status });
const create = { params: { path: { project_id: 'p' } }, body: { name: 'x' } };

test('an error carries code, message and request id', async () => {
  const { apiUrl } = await serve(
    json(400, { code: 'INVALID_STATE', message: 'not now', request_id: 'r-1' }),
  );
  const error: unknown = await createClient({ apiUrl, key: 'a:b' })
    .GET('/projects')
    .catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(HowdahError);
  expect(error).toMatchObject({
    status: 400,
    code: 'INVALID_STATE',
    message: 'not now',
    requestId: 'r-1',
  });
});

test('an answer that does not come from the API is an error too', async () => {
  const page: Answer = (_request, response) =>
    response.writeHead(403, { 'X-Request-Id': 'proxy-7' }).end('<html>go away</html>');
  const { apiUrl } = await serve(page);
  await expect(createClient({ apiUrl }).GET('/projects')).rejects.toMatchObject({
    status: 403,
    code: 'UNKNOWN',
    requestId: 'proxy-7',
  });
});

test('a warning of the API is reported with its text, one of a proxy is not', async () => {
  const { apiUrl } = await serve(
    json(200, [], { Warning: '299 - "fields were ignored: a, b"' }),
    json(200, [], { Warning: '110 proxy "response is stale"' }),
  );
  const noted: string[] = [];
  const client = createClient({ apiUrl, onWarning: (text) => noted.push(text) });
  await client.GET('/projects');
  await client.GET('/projects');
  expect(noted).toEqual(['fields were ignored: a, b']);
});

test('a GET is retried after a lost connection and a 503, then answered as usual', async () => {
  const { apiUrl, seen } = await serve(
    cut,
    json(503, {}),
    json(200, [{ id: 'p', name: 'default' }]),
  );
  const { data } = await createClient({ apiUrl }).GET('/projects');
  expect(data).toEqual([{ id: 'p', name: 'default' }]);
  expect(seen.map(({ method }) => method)).toEqual(['GET', 'GET', 'GET']);
});

test('a POST is retried with the same key and body; another POST has another key', async () => {
  const { apiUrl, seen } = await serve(cut, json(202, { service_id: 's' }));
  const client = createClient({ apiUrl });
  await client.POST('/projects/{project_id}/services', create);
  await client.POST('/projects/{project_id}/services', create);
  const [first, second, third] = seen;
  expect(first?.key).toMatch(/^[0-9a-f]{32}$/);
  expect(second).toEqual(first);
  expect(second?.body).toBe('{"name":"x"}');
  expect(third?.key).not.toBe(first?.key);
});

test('a client for dry runs changes nothing, reads, and throws the plan of a change', async () => {
  const plan = { dry_run: true, response_status: 202, operation: null };
  const { apiUrl, seen } = await serve(json(200, []), json(200, plan, { 'Dry-Run': 'true' }));
  const client = createClient({ apiUrl, dryRun: true });
  await client.GET('/projects');
  const made: unknown = await client
    .POST('/projects/{project_id}/services', create)
    .catch((thrown: unknown) => thrown);
  expect(made).toBeInstanceOf(DryRunError);
  expect(made).toMatchObject({ code: 'DRY_RUN', answer: plan });
  expect(seen.map(({ url }) => url)).toEqual(['/projects', '/projects/p/services?dry_run=true']);
  expect(seen[1]?.body).toBe('{"name":"x"}');
  // A key may be for dry runs only, whatever is asked for.
  await expect(
    createClient({ apiUrl }).POST('/projects/{project_id}/services', create),
  ).rejects.toMatchObject({ code: 'DRY_RUN' });
});

test('an Idempotency-Key of the caller is kept', async () => {
  const { apiUrl, seen } = await serve(json(202, {}));
  await createClient({ apiUrl }).POST('/projects/{project_id}/services', {
    ...create,
    headers: { 'Idempotency-Key': 'mine' },
  });
  expect(seen[0]?.key).toBe('mine');
});

test('a DELETE is not retried, nor a refused call', async () => {
  const { apiUrl, seen } = await serve(cut, json(409, { code: 'CONFLICT', message: 'no' }));
  const client = createClient({ apiUrl });
  const path = { project_id: 'p', service_id: 's' };
  await expect(
    client.DELETE('/projects/{project_id}/services/{service_id}', { params: { path } }),
  ).rejects.toBeInstanceOf(NoAnswerError);
  await expect(client.GET('/projects')).rejects.toMatchObject({ code: 'CONFLICT' });
  expect(seen.length).toBe(2);
});

test('it gives up after the given number of retries, and names the server', async () => {
  const { apiUrl, seen } = await serve(cut);
  await expect(createClient({ apiUrl, retries: 2 }).GET('/projects')).rejects.toThrow(
    `no answer from ${apiUrl}`,
  );
  expect(seen.length).toBe(3);
});

test('an aborted call is not retried', async () => {
  const { apiUrl, seen } = await serve(json(503, {}));
  const call = createClient({ apiUrl, retries: 1000 }).GET('/projects', {
    signal: AbortSignal.timeout(300),
  });
  await expect(call).rejects.toMatchObject({ name: 'TimeoutError' });
  expect(seen.length).toBeLessThan(20);
});

test('waitFor reports each status once, also after a lost connection', async () => {
  const { apiUrl } = await serveStatuses(
    service('QUEUED'),
    service('CONFIGURING'),
    service('CONFIGURING'),
    cut,
    service('READY'),
  );
  const seen: string[] = [];
  const found = await waitFor(
    createClient({ apiUrl }),
    { project_id: 'p', service_id: 's' },
    'READY',
    {
      onStatus: ({ status }) => seen.push(status),
    },
  );
  expect([found?.status, seen]).toEqual(['READY', ['QUEUED', 'CONFIGURING', 'READY']]);
});

test('waitFor follows the events: it reads after an event, and rarely otherwise', async () => {
  let status = 'CONFIGURING';
  let asked = 0;
  const server = createServer((request, response) => {
    if (request.url?.endsWith('/events') !== true) {
      asked++;
      return service(status)(request, response);
    }
    response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write(': here\n\n');
    setTimeout(() => {
      status = 'READY';
      response.write(
        'id: 1\ndata: {"id":"1","type":"service.status","data":{"service_id":"s"}}\n\n',
      );
    }, 700);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => server.closeAllConnections());
  onTestFinished(() => void server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const client = createClient({ apiUrl: `http://127.0.0.1:${address.port}` });
  const found = await waitFor(client, { project_id: 'p', service_id: 's' }, 'READY', {
    timeoutMs: 5000,
  });
  expect(found?.status).toBe('READY');
  // Polling alone would have asked seven times, and the pause before the next request is longer
  // than the time of this test.
  expect(asked).toBeLessThanOrEqual(4);
});

test('waitFor ends when the service is gone: DELETED succeeds, any other wait fails', async () => {
  const gone = await serve(json(404, { code: 'NOT_FOUND', message: 'no service' }));
  const of = { project_id: 'p', service_id: 's' };
  const client = createClient({ apiUrl: gone.apiUrl });
  expect(await waitFor(client, of, 'DELETED')).toBeNull();
  await expect(waitFor(client, of, 'READY')).rejects.toThrow(WaitError);
});

test('waitFor ends after its timeout with the last status, or with a signal', async () => {
  const { apiUrl } = await serve(service('UPGRADING'));
  const client = createClient({ apiUrl });
  const of = { project_id: 'p', service_id: 's' };
  // Long enough for one answer on a machine that is busy.
  await expect(waitFor(client, of, 'READY', { timeoutMs: 3000 })).rejects.toThrow(
    'service s is UPGRADING after 3 s, not READY',
  );
  await expect(
    waitFor(client, of, 'READY', { signal: AbortSignal.abort(new Error('enough')) }),
  ).rejects.toThrow('enough');
});
