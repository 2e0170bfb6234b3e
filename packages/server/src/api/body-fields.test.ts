import { CreateKeyBody, CreateProjectBody, NAMED_SCHEMAS, Ref } from '@howdah/contract';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { fastify } from 'fastify';
import { Type } from 'typebox';
import { beforeAll, expect, test } from 'vitest';
import { ignoreUnknownFields, reportIgnoredFields } from './body-fields.ts';
import { compileOnFirstUse } from './app.ts';
import { createErrorHandler } from './errors.ts';

const app = fastify().withTypeProvider<TypeBoxTypeProvider>();
beforeAll(async () => {
  compileOnFirstUse(app);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, text, done) =>
    done(null, JSON.parse(String(text))),
  );
  for (const schema of NAMED_SCHEMAS) app.addSchema(schema);
  app.setErrorHandler(createErrorHandler());
  app.decorateRequest('ignored');
  app.addHook('preValidation', ignoreUnknownFields);
  app.addHook('onSend', reportIgnoredFields);
  const list = Type.Object({
    size: Type.Optional(Type.Integer()),
    list: Type.Optional(Type.Array(Type.Object({ key: Type.String() }))),
  });
  // Each answers what it got.
  app.post('/open', { schema: { body: list } }, async ({ body }) => ({ got: body }));
  app.post('/list', { schema: { body: list } }, async () => ['x']);
  app.post('/none', async () => ({}));
  app.post('/gone', async (_, reply) => reply.code(204).send());
  app.post('/wrong', { schema: { body: list } }, async (_, reply) => reply.code(400).send({}));
  app.post('/key', { schema: { body: Ref(CreateKeyBody) } }, async () => ({}));
  app.post('/project', { schema: { body: Ref(CreateProjectBody) } }, async () => ({}));
  await app.ready();
});

async function post(url: string, body: object) {
  const answer = await app.inject({
    method: 'POST',
    url,
    headers: { 'content-type': 'application/json' },
    payload: JSON.stringify(body),
  });
  const text = answer.body;
  return {
    status: answer.statusCode,
    warning: answer.headers['warning'],
    body: text === '' ? '' : (JSON.parse(text) as unknown),
    length: [answer.headers['content-length'], Buffer.byteLength(text)],
  };
}

test('unknown fields are left out at any depth, and named in header and body', async () => {
  const { status, warning, body, length } = await post('/open', {
    size: 1,
    backup_window: { size: 5 },
    list: [{ key: 'a' }, { key: 'b', extra: 'c' }],
  });
  expect(status).toBe(200);
  expect(body).toEqual({
    got: { size: 1, list: [{ key: 'a' }, { key: 'b' }] },
    ignored: ['backup_window', 'list.1.extra'],
  });
  expect(warning).toBe(
    '299 - "fields that this call does not know were ignored: backup_window, list.1.extra"',
  );
  expect(length[0]).toBe(String(length[1]));
});

test('a body without unknown fields is reported nowhere', async () => {
  const { warning, body } = await post('/open', { size: 1 });
  expect([warning, body]).toEqual([undefined, { got: { size: 1 } }]);
});

test('a misspelled field is refused with the field that was meant', async () => {
  for (const [name, meant] of [
    ['Size', 'size'],
    ['siez', 'size'],
    ['lists', 'list'],
  ])
    expect(await post('/open', { [String(name)]: 1 })).toMatchObject({
      status: 400,
      body: { message: `${name}: no such field; did you mean ${meant}? allowed: size, list` },
    });
  expect(await post('/open', { list: [{ key: 'a', keys: 'b' }] })).toMatchObject({
    status: 400,
    body: { message: 'list.0.keys: no such field; did you mean key? allowed: key' },
  });
});

test('strict=true refuses each unknown field; other values are refused', async () => {
  expect((await post('/open?strict=true', { size: 1 })).status).toBe(200);
  expect((await post('/open?strict=false', { another: 1 })).status).toBe(200);
  expect(await post('/open?strict=true', { another: 1 })).toMatchObject({
    status: 400,
    body: { message: 'another: no such field; allowed: size, list' },
  });
  expect(await post('/none?strict=true', { another: 1 })).toMatchObject({
    status: 400,
    body: { message: 'another: no such field; this call takes no body' },
  });
  expect(await post('/open?strict=yes', {})).toMatchObject({
    status: 400,
    body: { message: 'strict: found "yes"; allowed: true, false' },
  });
});

test('an answer that is no object, empty or refused has the header or nothing', async () => {
  const unknown = { another: 1 };
  expect(await post('/list', unknown)).toMatchObject({
    warning: expect.stringContaining('another'),
    body: ['x'],
  });
  expect(await post('/gone', unknown)).toMatchObject({
    warning: expect.stringContaining('another'),
    body: '',
  });
  expect((await post('/none', unknown)).body).toEqual({ ignored: ['another'] });
  expect(await post('/wrong', unknown)).toMatchObject({ warning: undefined, body: {} });
});

test('names that are no header text, very long or very many do no harm', async () => {
  const names = ['Größe "x"\r\nSet-Cookie: a=b', '__proto__', 'x'.repeat(5000), '🐘'.repeat(65)];
  const many = Array.from({ length: 96 }, (_, index) => `unknown_${index}`);
  const all = [...names, ...many];
  // A literal would set the prototype; JSON.parse makes a field of it.
  const body: unknown = JSON.parse(`{${all.map((name) => `${JSON.stringify(name)}:1`).join(',')}}`);
  const { status, warning, body: answered } = await post('/open', Object(body));
  expect(status).toBe(200);
  expect(answered).toEqual({ got: {}, ignored: all });
  expect(warning).toMatch(/^299 - "[\x20\x21\x23-\x7e]{1,2600}, 90 more"$/);
});

test('a body with more than 100 unknown fields is refused', async () => {
  const body = Object.fromEntries(Array.from({ length: 101 }, (_, n) => [`unknown_${n}`, 1]));
  expect(await post('/open', body)).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('more than 100 fields') },
  });
});

test('bodies whose fields restrict something stay closed', async () => {
  expect(await post('/key', { name: 'x', role: 'viewer', expires: 'soon' })).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('expires: no such field') },
  });
  expect(await post('/project', { name: 'x', limits: { backups: 1 } })).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('limits.backups: no such field') },
  });
});
