/**
 * The tools, called by the protocol's own client over both transports, against a whole
 * installation.
 */
import { Client } from '@modelcontextprotocol/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  CHANGES,
  cloud,
  DESTROYS,
  ENDS,
  idOf,
  keyOf,
  keys,
  OF_LISTS,
  raw,
  READS,
  TAKES,
  withHttp,
  withStdio,
  WRITES,
  setUp,
  tearDown,
} from './mcp-cloud.ts';
import {
  askAndFail,
  changeFork,
  lookAfter,
  makeShop,
  pauseAndResize,
  readSchema,
} from './mcp-day.ts';
import {
  changePassword,
  compare,
  configure,
  forkShop,
  lease,
  migrate,
  write,
} from './mcp-journey.ts';
import { untilExpected } from '../../server/test/until.ts';

beforeAll(setUp);
afterAll(tearDown);

test('the tools describe effects, costs and parameters over both transports', async () => {
  const { tools } = await withStdio(({ client }) => client.listTools());
  expect(tools.map(({ name }) => name).toSorted()).toEqual(
    [...READS, ...CHANGES, ...OF_LISTS, ...WRITES].toSorted(),
  );
  for (const { name, description = '', annotations, inputSchema } of tools) {
    expect(description.length, name).toBeGreaterThan(40);
    expect(annotations?.readOnlyHint, name).toBe(READS.includes(name));
    if (!READS.includes(name))
      expect(annotations?.destructiveHint, name).toBe([...DESTROYS, ...TAKES].includes(name));
    const fields = Object.keys(inputSchema.properties ?? {});
    expect(fields.includes('dry_run'), name).toBe([...CHANGES, ...OF_LISTS].includes(name));
    expect(fields.includes('idempotency_key'), name).toBe(CHANGES.includes(name));
    expect(fields, name).not.toContain('service_id');
    expect(inputSchema.required?.includes('confirm') ?? false, name).toBe(DESTROYS.includes(name));
    expect(inputSchema['additionalProperties'], name).toBe(false);
  }
  expect(await withHttp(keys.viewer, ({ client }) => client.listTools())).toMatchObject({ tools });
  const modern = new Client(
    { name: 'test', version: '1' },
    { versionNegotiation: { mode: 'auto' } },
  );
  expect(
    (await withHttp(keys.viewer, ({ client }) => client.listTools(), modern)).tools,
  ).toHaveLength(tools.length);
});

test('an agent makes a service, reads it, changes a fork of it and cleans up', async () => {
  await withStdio(async ({ call }) => {
    expect((await call('whoami')).data).toMatchObject({
      role: 'admin',
      project: { id: cloud.projectId },
    });
    const shop = await makeShop(call);
    await readSchema(call);
    await askAndFail(call);
    await changeFork(call, shop);
    await pauseAndResize(call);
    await lookAfter(call);
  });
});

test('an agent with a fork_only key forks, migrates, tests, compares and reports', async () => {
  await withHttp(keys.forkOnly, async ({ call }) => {
    const uri = await forkShop(call);
    await migrate(call);
    await write(call);
    await compare(call);
    await changePassword(call, uri);
  });
  for (const key of [keys.developer, cloud.key])
    await withHttp(key, async ({ call }) => {
      expect((await call('execute', { service: 'trial', sql: 'select 1' })).data).toMatchObject({
        code: 'REFUSED',
        message: expect.stringContaining('another key'),
      });
    });
  // A process that has not made the fork sets another password.
  await withStdio(
    async ({ call }) => {
      const execute = async () => call('execute', { service: 'trial', sql: 'table orders' });
      for (const { data } of await Promise.all([execute(), execute(), execute()]))
        expect(data).toMatchObject({ row_count: 3 });
    },
    { env: { HD_KEY: keys.forkOnly } },
  );
  // The password of the first process is a former one now.
  await withHttp(keys.forkOnly, async ({ call }) => {
    expect((await call('execute', { service: 'trial', sql: 'select 1' })).failed).toBe(false);
    await call('delete_service', { service: 'trial', confirm: 'trial' });
  });
});

test('an agent with a fork_only key takes leases, writes in one, extends and returns', async () => {
  await withHttp(keys.forkOnly, async ({ call }) => lease(call));
});

test('an agent configures replicas, pooler, VPC and allow lists', async () => {
  await withHttp(keys.developer, async ({ call }) => configure(call));
});

test('statements on forks leave no fork behind', async () => {
  await untilExpected('no fork for a statement is left', async () =>
    expect((await withStdio(({ call }) => call('list_services'))).text).not.toContain('-query'),
  );
});

test('storage is set at creation and resized live; purge removes a service for good', async () => {
  await withHttp(cloud.key, async ({ call }) => {
    const made = await call('create_service', {
      name: 'purged',
      service_type: 'POSTGRES',
      storage_gb: 3,
      environment: 'PROD',
    });
    expect(made.data).toMatchObject({ status: 'READY', storage_gb: 3 });
    expect(
      (await call('resize_service', { service: 'purged', storage_gb: 4, dry_run: true })).data,
    ).toMatchObject({
      operation: { steps: ['reload configuration'] },
    });
    expect((await call('resize_service', { service: 'purged' })).data).toMatchObject({
      code: 'REFUSED',
    });
    const confirmed = { service: 'purged', storage_gb: 4, confirm: 'purged' };
    expect((await call('resize_service', confirmed)).data).toMatchObject({
      status: 'READY',
      storage_gb: 4,
    });

    const id = made.data['service_id'];
    expect(
      (await call('purge_service', { service: 'purged', confirm: 'shop' })).data,
    ).toMatchObject({ code: 'REFUSED' });
    await call('delete_service', { service: 'purged', confirm: 'purged' });
    const { text } = await call('list_services', { deleted: true });
    expect(text).toContain('restorable_until');
    expect(
      (await call('purge_service', { service: 'purged', confirm: 'purged', dry_run: true })).data,
    ).toMatchObject({
      dry_run: true,
      operation: { kind: 'delete' },
    });
    expect(
      (await call('purge_service', { service: 'purged', confirm: 'purged' })).data,
    ).toMatchObject({ service_id: id });
    expect((await call('restore_service', { service: id })).data).toMatchObject({
      code: 'NOT_FOUND',
    });

    const living = await call('create_service', { name: 'living', service_type: 'POSTGRES' });
    expect((await call('purge_service', { service: 'living', confirm: 'living' })).failed).toBe(
      false,
    );
    await untilExpected('the service is gone', async () =>
      expect(
        (await call('get_service', { service: living.data['service_id'] })).data,
      ).toMatchObject({ code: 'NOT_FOUND' }),
    );
    expect((await call('list_services', { deleted: true })).text).not.toContain('living');
  });
});

test('a dry run describes the change only; an idempotency key makes a call once', async () => {
  await withHttp(keys.developer, async ({ call }) => {
    const dry = await call('create_service', { name: 'never', dry_run: true });
    expect(dry.data).toMatchObject({ dry_run: true, operation: { kind: 'create' } });
    const dryDelete = await call('delete_service', {
      service: 'shop',
      confirm: 'shop',
      dry_run: true,
    });
    expect(dryDelete.data).toMatchObject({ dry_run: true, operation: { kind: 'delete' } });
    const twice = { name: 'once', service_type: 'POSTGRES', idempotency_key: 'agent-1' };
    const [first, second] = [
      await call('create_service', twice),
      await call('create_service', twice),
    ];
    expect(second.data['service_id']).toBe(first.data['service_id']);
    expect(second.data['password']).toBe(first.data['password']);
    const { text } = await call('list_services');
    expect(text).not.toContain('never');
    expect(text).toContain('shop');
    await call('delete_service', { service: 'once', confirm: 'once' });
  });
  const { data } = await withHttp(keys.dryRunOnly, ({ call }) =>
    call('stop_service', { service: 'shop', confirm: 'shop' }),
  );
  expect(data).toMatchObject({ dry_run: true, operation: { kind: 'stop' } });
});

test('keys limit the tools as they limit the API', async () => {
  await withHttp(keys.viewer, async ({ call }) => {
    expect((await call('list_services')).failed).toBe(false);
    for (const [name, args] of [
      ['create_service', { name: 'x' }],
      ['delete_service', { service: 'shop', confirm: 'shop' }],
      ['db_query', { service: 'shop', sql: 'select 1' }],
      ['db_schema', { service: 'shop' }],
    ] as const)
      expect((await call(name, args)).data, name).toMatchObject({
        code: 'FORBIDDEN',
        try_next: expect.stringContaining('whoami'),
      });
  });
  await withHttp(keys.forkOnly, async ({ call }) => {
    expect((await call('whoami')).text).toContain('nothing but its own forks');
    expect((await call('db_query', { service: 'shop', sql: 'select 1' })).data).toMatchObject({
      code: 'FORBIDDEN',
    });
    expect((await call('stop_service', { service: 'shop', confirm: 'shop' })).data).toMatchObject({
      code: 'FORBIDDEN',
    });
    expect(
      (
        await call('db_query', {
          service: 'shop',
          sql: 'select count(*) from orders',
          on_fork: true,
        })
      ).data['rows'],
    ).toEqual([['2']]);
  });
  await cloud.request('POST', `/services/${await idOf('shop')}/setEnvironment`, {
    environment: 'PROD',
  });
  await withHttp(keys.developer, async ({ call }) => {
    for (const name of ['purge_service', 'recover_service'])
      expect((await call(name, { service: 'shop', confirm: 'shop' })).data, name).toMatchObject({
        code: 'FORBIDDEN',
        message: expect.stringContaining('admin'),
      });
    for (const name of ENDS)
      expect((await call(name, { service: 'shop', confirm: 'no' })).data, name).toMatchObject({
        code: 'FORBIDDEN',
        message: expect.stringContaining('PROD'),
      });
  });
  expect((await cloud.get(await idOf('shop'))).status).toBe('READY');
});

test('wrong arguments are named, and for unknown things the tool that lists them', async () => {
  await withStdio(async ({ call }) => {
    expect((await call('get_service', { service: 'nobody' })).data).toMatchObject({
      code: 'NOT_FOUND',
      try_next: expect.stringContaining('list_services'),
    });
    expect((await call('get_service', { service: 'nosuchidxx' })).data).toMatchObject({
      code: 'NOT_FOUND',
    });
    expect((await call('get_service', { servic: 'shop' })).failed).toBe(true);
    expect(
      (await call('db_query', { service: 'shop', sql: 'select 1', max_rows: 100_000 })).text,
    ).toContain('max_rows');
    expect((await call('resize_service', { service: 'shop' })).data).toMatchObject({
      code: 'REFUSED',
    });
    expect(
      (
        await call('fork_service', {
          service: 'shop',
          strategy: 'PITR',
          target_time: '2001-01-01T00:00:00Z',
        })
      ).text,
    ).toContain('window');
  });
});

test('HTTP calls without a key, from another page or by another host are refused', async () => {
  const good = { Authorization: `Bearer ${keys.viewer}` };
  expect((await raw({})).status).toBe(401);
  expect((await raw({ Authorization: 'Bearer wrong:key' })).status).toBe(401);
  expect((await raw({ ...good, Origin: 'https://evil.example' })).status).toBe(403);
  expect((await raw({ ...good, Host: 'evil.example' })).status).toBe(403);
  expect(
    (await raw({ ...good, Host: 'evil.example:80', Origin: 'http://evil.example' })).status,
  ).toBe(403);
  expect((await raw(good, 'POST', '/')).status).toBe(404);
  expect((await raw(good, 'POST', '//')).status).toBe(404);
  expect((await raw(good, 'POST', '/mcp', 'x'.repeat(2_000_000))).status).toBe(413);
  expect(
    (
      await raw(
        { ...good, Origin: 'http://localhost:3000', Accept: 'application/json, text/event-stream' },
        'POST',
        '/mcp',
        PING,
      )
    ).status,
  ).toBe(200);
  await expect(withHttp('wrong:key', ({ client }) => client.listTools())).rejects.toThrow();
  const revoked = await keyOf({ name: 'r', role: 'viewer' });
  expect(
    (
      await raw(
        { Authorization: `Bearer ${revoked}`, Accept: 'application/json, text/event-stream' },
        'POST',
        '/mcp',
        PING,
      )
    ).status,
  ).toBe(200);
  await cloud.request('DELETE', `/keys/${revoked.split(':')[0]}`);
  expect((await raw({ Authorization: `Bearer ${revoked}` }, 'POST', '/mcp', PING)).status).toBe(
    401,
  );
});

const PING = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });

test('with a key of its own a process over standard input has the rights of that key', async () => {
  await withStdio(
    async ({ call }) => {
      expect((await call('whoami')).data).toMatchObject({ role: 'viewer' });
    },
    { env: { HD_KEY: keys.viewer } },
  );
});

test('without a control plane the tools say how to start it', async () => {
  await withStdio(
    async ({ call }) => {
      expect((await call('list_services')).data).toMatchObject({
        code: 'NO_ANSWER',
        try_next: expect.stringContaining('howdah up'),
      });
    },
    { env: { HD_API: 'http://127.0.0.1:9/public/api/v1', HD_KEY: 'a:b' } },
  );
});

test('without a key of its own a process over standard input does not start', async () => {
  const { stderr, code } = await cloud.cli('mcp');
  expect(code).toBe(2);
  expect(stderr).toContain('howdah key create --name agent --role developer --fork-only');
});

test('a client that can asks its user before a PROD service is taken away', async () => {
  const asked: string[] = [];
  const answers = [
    { action: 'decline' as const },
    { action: 'accept' as const, content: { name: 'orders' } },
    { action: 'accept' as const, content: { name: 'shop' } },
  ];
  const clientOf = (mode: 'auto' | 'legacy'): Client => {
    const client = new Client(
      { name: 'test', version: '1' },
      { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
    );
    client.setRequestHandler('elicitation/create', async ({ params }) => {
      asked.push(params.message);
      return answers.shift() ?? { action: 'cancel' as const };
    });
    return client;
  };
  await withStdio(
    async ({ call }) => {
      const args = { service: 'shop', confirm: 'shop' };
      for (const answer of ['declined', 'another name'])
        expect((await call('restart_service', args)).data, answer).toMatchObject({
          code: 'DECLINED',
        });
      expect((await call('restart_service', args)).data).toMatchObject({ status: 'READY' });
      await call('stop_service', { ...args, dry_run: true });
    },
    { client: clientOf('legacy') },
  );
  expect(asked).toHaveLength(3);
  const resize = { service: 'shop', storage_gb: 30, confirm: 'shop' };
  await withHttp(
    cloud.key,
    async ({ call }) =>
      expect((await call('resize_service', resize)).data).toMatchObject({ code: 'DECLINED' }),
    clientOf('auto'),
  );
  expect(asked).toHaveLength(4);
  expect(asked[0]).toContain('restart_service for the service shop');
});

test('names of Tiger Cloud are tools with its arguments, where they are asked for', async () => {
  await withStdio(
    async ({ call, client }) => {
      const { tools } = await client.listTools();
      expect(tools.map(({ name }) => name)).toContain('service_fork');
      const service_id = await idOf('shop');
      expect((await call('service_get', { service_id })).data).toMatchObject({ name: 'shop' });
      expect(
        (await call('db_execute_query', { service_id, query: 'select count(*) from orders' })).data,
      ).toMatchObject({ rows: [['2']] });
      expect((await call('service_stop', { service_id, confirm: 'wrong' })).data).toMatchObject({
        code: 'REFUSED',
      });
    },
    { args: ['--tiger-names'] },
  );
});

test('prompts lead through a way of working; the schema of a service is a resource', async () => {
  await withHttp(keys.developer, async ({ client }) => {
    const { prompts } = await client.listPrompts();
    expect(prompts.map(({ name }) => name)).toEqual(['try_migration', 'why_slow', 'what_changed']);
    const { messages } = await client.getPrompt({
      name: 'try_migration',
      arguments: { service: 'shop', sql: 'alter table orders drop total' },
    });
    expect(JSON.stringify(messages)).toContain('alter table orders drop total');
    const uri = 'howdah://services/shop/schema';
    const { resources } = await client.listResources();
    expect(resources).toContainEqual(expect.objectContaining({ uri }));
    const { contents } = await client.readResource({ uri });
    expect(JSON.stringify(contents)).toContain('customers');
    const { completion } = await client.complete({
      ref: { type: 'ref/resource', uri: 'howdah://services/{name}/schema' },
      argument: { name: 'name', value: 'sh' },
    });
    expect(completion.values).toEqual(['shop']);
  });
  await withHttp(keys.viewer, async ({ client }) => {
    await expect(client.readResource({ uri: 'howdah://services/shop/schema' })).rejects.toThrow(
      'FORBIDDEN',
    );
  });
});
