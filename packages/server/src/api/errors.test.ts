import { connect } from 'node:net';
import {
  CreateKeyBody,
  CreateServiceBody,
  RenameBody,
  ResizeBody,
  SeriesBody,
  SetEnvironmentBody,
  SetObjectStoreBody,
  UpdatePasswordBody,
} from '@howdah/contract';
import { Ajv } from 'ajv';
import addFormats from 'ajv-formats';
import { fastify } from 'fastify';
import { expect, test, afterAll, beforeAll } from 'vitest';
import {
  createErrorHandler,
  explainValidation,
  createFailures,
  sourceOf,
  answerBrokenRequest,
  refuseTunnel,
} from './errors.ts';

const ajv = new Ajv({ verbose: true, strict: false });
addFormats.default(ajv);

const explain = (schema: object, body: unknown): string => {
  const validate = ajv.compile(schema);
  expect(validate(body)).toBe(false);
  return explainValidation(
    (validate.errors ?? []).map(({ parentSchema, ...error }) => ({
      ...error,
      parentSchema: { ...parentSchema },
    })),
    'body',
  );
};

/** Each: the field, what was found, what is allowed. */
const REFUSED: [string, object, unknown, string[]][] = [
  ['a field that is missing', CreateServiceBody, {}, ['name: missing']],
  [
    'a field that does not exist',
    CreateKeyBody,
    { name: 'x', role: 'viewer', expires: 'y' },
    ['expires: no such field', 'allowed: name, role'],
  ],
  [
    'a value of another type',
    CreateServiceBody,
    { name: 5 },
    ['name: found 5', 'expected string', '1 to 128'],
  ],
  ['null for a value', CreateServiceBody, { name: null }, ['name: missing', 'string']],
  ['no body at all', CreateServiceBody, undefined, ['the body: missing', 'JSON object']],
  ['a body that is a list', CreateServiceBody, [], ['the body: found []', 'expected object']],
  [
    'a name that is empty',
    CreateServiceBody,
    { name: '' },
    ['name: found 0 characters', '1 to 128'],
  ],
  [
    'a name that is too long, in characters',
    CreateServiceBody,
    { name: '🐘'.repeat(129) },
    ['name: found 129 characters', '1 to 128'],
  ],
  [
    'a name with a control character',
    CreateServiceBody,
    { name: 'a\u0007b' },
    ['name: found "a\\u0007b"'],
  ],
  [
    'a name with a character that nobody sees',
    CreateServiceBody,
    { name: 'a\u202eb' },
    ['name: found "a\\u202eb"', 'visible text'],
  ],
  [
    'a choice',
    SetEnvironmentBody,
    { environment: 'prod' },
    ['environment: found "prod"', 'DEV, PROD'],
  ],
  [
    'a choice in a list',
    CreateServiceBody,
    { name: 'x', addons: ['ai', 'sql'] },
    ['addons.1: found "sql"', 'time-series, ai'],
  ],
  [
    'a number that is neither digits nor integer',
    ResizeBody,
    { cpu_millis: 'lots' },
    ['cpu_millis: found "lots"', 'thousandths of a core'],
  ],
  [
    'a fraction',
    CreateServiceBody,
    { name: 'x', replica_count: 0.5 },
    ['replica_count: found 0.5', 'integer'],
  ],
  [
    'a number below the least',
    SeriesBody,
    { name: 'x', from: '2026-01-01T00:00:00Z', to: '2026-01-02T00:00:00Z', bucket_seconds: 1 },
    ['bucket_seconds: found 1', '60'],
  ],
  [
    'no date-time',
    SeriesBody,
    { name: 'x', from: 'yesterday', to: '2026-01-02T00:00:00Z' },
    ['from: found "yesterday"', 'a date-time with an offset, like 2026-01-31T12:00:00Z'],
  ],
  ['a long value', RenameBody, { name: ['x'.repeat(500)] }, ['name: found ["xxx', '…']],
];
test.each(REFUSED)('%s', (_title, schema, body, parts) => {
  const message = explain(schema, body);
  expect(message, 'no sentence of the validator').not.toMatch(/must (NOT|be|match|pass)/);
  for (const part of parts) expect(message).toContain(part);
  expect(message.length).toBeLessThan(300);
});

test('a password is never shown', () => {
  for (const password of [
    'hunter2',
    `hunter2\u0007${'x'.repeat(20)}`,
    'hunter2'.repeat(50),
    ['hunter2'],
    { hunter2: 1 },
  ]) {
    const message = explain(UpdatePasswordBody, { password });
    expect(message).toContain('password');
    expect(message).not.toContain('hunter2');
  }
});

test('a secret key is never shown', () => {
  const place = { endpoint: 'https://a', bucket: 'made', region: 'a', key_id: 'a' };
  const message = explain(SetObjectStoreBody, { ...place, key: ['hunter2'] });
  expect(message).toContain('key');
  expect(message).not.toContain('hunter2');
});

test('nothing to explain', () => {
  expect(explainValidation([], 'query')).toBe('the query is not valid');
});

/** How an error that a handler throws is answered. */
async function answer(error: Error) {
  const app = fastify();
  app.setErrorHandler(createErrorHandler());
  app.get('/', async () => {
    throw error;
  });
  const { statusCode, headers, body } = await app.inject('/');
  await app.close();
  return { statusCode, headers, body };
}

test('a metadata database without space is a reason to try again, not a defect', async () => {
  const { statusCode, headers, body } = await answer(
    Object.assign(new Error('could not extend file "base/5/16384": No space left on device'), {
      code: '53100',
    }),
  );
  expect([statusCode, headers['retry-after']]).toEqual([503, '1']);
  expect(body).toContain('howdah doctor');
  expect(body).not.toContain('base/5');
});

test('an unexpected error is answered without its text', async () => {
  const { statusCode, body } = await answer(new Error('secret'));
  expect(statusCode).toBe(500);
  expect(body).not.toContain('secret');
});

test('requests that fail without the metadata database are logged once a second', async () => {
  const lines: string[] = [];
  let nowMs = 0;
  const app = fastify({
    logger: { level: 'error', stream: { write: (line) => lines.push(line) } },
  });
  app.setErrorHandler(createErrorHandler(() => nowMs));
  app.get('/', async () => {
    throw Object.assign(new Error('connect ENOENT'), { code: 'ENOENT' });
  });
  for (const atMs of [0, 10, 999, 1000]) {
    nowMs = atMs;
    expect((await app.inject('/')).statusCode).toBe(503);
  }
  await app.close();
  expect(lines.map((line) => /"omitted":(\d+)/.exec(line)?.[1])).toEqual(['0', '2']);
});

test('so many wrong keys a minute, by address, and then again', () => {
  let nowMs = 0;
  const failures = createFailures(3, () => nowMs);
  expect([1, 2, 3, 4, 5].map(() => failures.note('192.0.2.1'))).toEqual([
    true,
    true,
    true,
    false,
    false,
  ]);
  expect(failures.note('192.0.2.2')).toBe(true);
  nowMs = 59_999;
  expect(failures.note('192.0.2.1')).toBe(false);
  nowMs = 60_000;
  expect(failures.note('192.0.2.1')).toBe(true);
});

test('whose an address is', () => {
  expect(sourceOf('192.0.2.1')).toBe('192.0.2.1');
  expect(sourceOf('::ffff:192.0.2.1')).toBe('192.0.2.1');
  expect(sourceOf('2001:db8:1:2:3:4:5:6')).toBe('2001:db8:1:2');
  expect(sourceOf('2001:db8:1:2::9')).toBe('2001:db8:1:2');
  expect(sourceOf('2001:db8::9')).toBe('2001:db8:0:0');
  expect(sourceOf('::1')).toBe('0:0:0:0');
  expect(sourceOf('')).toBe('');
});

const app = fastify({ clientErrorHandler: answerBrokenRequest });
let port = 0;
beforeAll(async () => {
  app.server.on('connect', (_request, socket) => refuseTunnel(socket));
  app.get('/', async () => ({}));
  port = Number(new URL(await app.listen({ port: 0, host: '127.0.0.1' })).port);
});
afterAll(() => app.close());

/** Sends bytes, and returns all that comes back until the server closes. */
const send = (bytes: string | Buffer): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    socket.on('error', reject).on('close', () => resolve(text));
    socket.write(bytes);
  });

test('a method that the HTTP server does not know is 405 with the known ones', async () => {
  for (const line of ['BREW /x?y=1', 'CONNECT example.com:443', 'X-Y9 /']) {
    const answer = await send(`${line} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}`);
    expect(answer, line).toMatch(/^HTTP\/1\.1 405 Method Not Allowed\r\n/);
    expect(answer, line).toContain('\r\nAllow: GET, HEAD, POST, PUT, PATCH, DELETE\r\n');
    const body: unknown = JSON.parse(answer.split('\r\n\r\n')[1] ?? '');
    expect(body, line).toMatchObject({
      code: 'METHOD_NOT_ALLOWED',
      request_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
  }
});

test('bytes that only resemble a request line are 400', async () => {
  for (const bytes of [
    'GARBAGE\r\n\r\n',
    'BREW /x\r\n\r\n',
    'BREW /x HTTP/9.9\r\n\r\n',
    'brew /x HTTP/1.1\r\n\r\n',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]),
  ])
    expect(await send(bytes), String(bytes)).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
});
