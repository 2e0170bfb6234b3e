/** The tools, called by the protocol's own client over both transports, against a whole installation. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:http';
import type { Schemas } from '@howdah/client';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { Client as Postgres } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { HOWDAH, install, type Installation } from '../../server/test/harness.ts';

let cloud: Installation;
let url: string;
let endHttp: () => Promise<void>;
const keys: Record<'viewer' | 'developer' | 'forkOnly' | 'dryRunOnly', string> = {
  viewer: '',
  developer: '',
  forkOnly: '',
  dryRunOnly: '',
};

async function keyOf(body: Schemas['CreateKey']): Promise<string> {
  const { data } = await cloud.client.POST('/projects/{project_id}/keys', {
    params: { path: { project_id: cloud.projectId } },
    body,
  });
  return `${data?.public_key}:${data?.secret_key}`;
}

/** Starts `howdah mcp --http` on a port of its own. */
async function startHttp(): Promise<void> {
  const child = spawn(process.execPath, [HOWDAH, 'mcp', '--http', '--port', '0'], {
    env: cloud.env,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8');
  for await (const text of child.stderr) {
    said += String(text);
    url = /http:\/\/127\.0\.0\.1:\d+\/mcp/.exec(said)?.[0] ?? '';
    if (url !== '') break;
  }
  if (url === '') throw new Error(`howdah mcp --http did not start: ${said}`);
  endHttp = async () => {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  };
}

beforeAll(async () => {
  cloud = await install();
  keys.viewer = await keyOf({ name: 'v', role: 'viewer' });
  keys.developer = await keyOf({ name: 'd', role: 'developer' });
  keys.forkOnly = await keyOf({ name: 'f', role: 'developer', fork_only: true });
  keys.dryRunOnly = await keyOf({ name: 'p', role: 'developer', dry_run_only: true });
  await startHttp();
});
afterAll(async () => {
  await endHttp?.();
  expect(await cloud?.destroy()).toEqual([]);
});

type Data = Record<string, unknown>;
type Answer = { data: Data; text: string; failed: boolean };
type Caller = { call: (name: string, args?: Data) => Promise<Answer>; client: Client };

function callerOf(client: Client): Caller {
  const call = async (name: string, args: Data = {}): Promise<Answer> => {
    const { content, structuredContent, isError } = await client.callTool(
      { name, arguments: args },
      { timeout: 290_000 },
    );
    const [first] = content;
    const data: Data =
      typeof structuredContent === 'object' && structuredContent !== null
        ? { ...structuredContent }
        : {};
    return { data, text: first?.type === 'text' ? first.text : '', failed: isError === true };
  };
  return { call, client };
}

async function withStdio<T>(
  work: (caller: Caller) => Promise<T>,
  env: Record<string, string> = {},
): Promise<T> {
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(
    new StdioClientTransport({
      command: process.execPath,
      args: [HOWDAH, 'mcp'],
      env: { ...cloud.env, ...env },
    }),
  );
  try {
    return await work(callerOf(client));
  } finally {
    await client.close();
  }
}

async function withHttp<T>(
  key: string,
  work: (caller: Caller) => Promise<T>,
  client = new Client({ name: 'test', version: '1' }),
): Promise<T> {
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url), {
      requestInit: { headers: { Authorization: `Bearer ${key}` } },
    }),
  );
  try {
    return await work(callerOf(client));
  } finally {
    await client.close();
  }
}

const READS = [
  'whoami',
  'get_usage',
  'list_regions',
  'list_services',
  'get_service',
  'list_backups',
  'list_operations',
  'get_operation',
  'wait_for_operation',
  'get_logs',
  'get_metrics',
  'db_schema',
  'db_query',
];
const ENDS = ['stop_service', 'delete_service'];
const DESTROYS = [...ENDS, 'purge_service'];
const CHANGES = [
  'create_service',
  'fork_service',
  'start_service',
  'resize_service',
  'restore_service',
  'verify_backup',
  'cancel_operation',
  ...DESTROYS,
];

test('the tools say what they do, what it costs, and what they need; the same over both transports and both protocols', async () => {
  const { tools } = await withStdio(({ client }) => client.listTools());
  expect(tools.map(({ name }) => name).toSorted()).toEqual([...READS, ...CHANGES].toSorted());
  for (const { name, description = '', annotations, inputSchema } of tools) {
    expect(description.length, name).toBeGreaterThan(40);
    expect(annotations?.readOnlyHint, name).toBe(READS.includes(name));
    if (!READS.includes(name))
      expect(annotations?.destructiveHint, name).toBe(DESTROYS.includes(name));
    const fields = Object.keys(inputSchema.properties ?? {});
    for (const field of ['dry_run', 'idempotency_key'])
      expect(fields.includes(field), `${name}.${field}`).toBe(CHANGES.includes(name));
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

test('a day of an agent: make, look, ask, fork, change the fork, clean up', async () => {
  await withStdio(async ({ call }) => {
    expect((await call('whoami')).data).toMatchObject({
      role: 'admin',
      project: { id: cloud.projectId },
    });
    const made = await call('create_service', { name: 'shop', service_type: 'POSTGRES' });
    expect(made.data).toMatchObject({
      name: 'shop',
      status: 'READY',
      password: expect.stringMatching(/^.{32}$/),
    });
    const db = new Postgres({
      connectionString: String(made.data['connection_string']).replace('require', 'no-verify'),
    });
    await db.connect();
    await db.query(
      'create table customers (id int primary key, name text not null default $$nobody$$)',
    );
    await db.query(
      'create table orders (id int primary key, customer int references customers (id), total numeric(10,2))',
    );
    await db.query('create index by_customer on orders (customer)');
    await db.query("comment on table orders is 'what was bought'");
    await db.query('create view big as select * from orders where total > 100');
    await db.query(
      "insert into customers values (1, 'Ada'); insert into orders values (1, 1, 120.50), (2, 1, 5)",
    );
    await db.end();

    const schema = await call('db_schema', { service: 'shop' });
    expect(schema.data['tables']).toMatchObject([
      { schema: 'public', name: 'big', kind: 'view' },
      {
        schema: 'public',
        name: 'customers',
        kind: 'table',
        columns: ['id integer not null', "name text not null default 'nobody'::text"],
        keys: ['customers_pkey: PRIMARY KEY (id)'],
      },
      {
        name: 'orders',
        columns: ['id integer not null', 'customer integer', 'total numeric(10,2)'],
        keys: [
          'orders_pkey: PRIMARY KEY (id)',
          'orders_customer_fkey: FOREIGN KEY (customer) REFERENCES customers(id)',
        ],
        indexes: ['CREATE INDEX by_customer ON public.orders USING btree (customer)'],
        bytes: expect.any(Number),
        comment: 'what was bought',
      },
    ]);
    expect(
      (await call('db_schema', { service: 'shop', table: 'orders' })).data['tables'],
    ).toHaveLength(1);

    const asked = await call('db_query', {
      service: 'shop',
      sql: 'select name, sum(total) from orders join customers c on c.id = customer where c.id = $1 group by 1',
      parameters: ['1'],
    });
    expect(asked).toMatchObject({ failed: false, data: { rows: [['Ada', '125.50']] } });
    expect(asked.text).toContain('125.50');
    const write = await call('db_query', { service: 'shop', sql: 'delete from orders' });
    expect(write).toMatchObject({
      failed: true,
      data: { code: 'INVALID_REQUEST', try_next: expect.stringContaining('fork_service') },
    });
    expect(
      (await call('db_query', { service: 'shop', sql: 'select * from nowhere' })).data['try_next'],
    ).toContain('db_schema');

    const onFork = await call('db_query', {
      service: 'shop',
      sql: 'select count(*) from orders',
      on_fork: true,
    });
    expect(onFork.data).toMatchObject({
      rows: [['2']],
      fork: { fork_ms: expect.any(Number), left_because: null },
    });
    const failed = await call('db_query', { service: 'shop', sql: 'select broken', on_fork: true });
    expect(failed.failed).toBe(true);

    const fork = await call('fork_service', { service: 'shop', name: 'try' });
    expect(fork.data).toMatchObject({
      name: 'try',
      status: 'READY',
      forked_from: made.data['service_id'],
    });
    const inFork = new Postgres({
      connectionString: String(fork.data['connection_string']).replace('require', 'no-verify'),
    });
    await inFork.connect();
    await inFork.query('delete from orders');
    await inFork.end();
    expect(
      (await call('db_query', { service: 'try', sql: 'select count(*) from orders' })).data['rows'],
    ).toEqual([['0']]);
    expect(
      (await call('db_query', { service: 'shop', sql: 'select count(*) from orders' })).data[
        'rows'
      ],
    ).toEqual([['2']]);

    expect(await call('delete_service', { service: 'try', confirm: 'shop' })).toMatchObject({
      failed: true,
      data: { code: 'REFUSED' },
    });
    const deleted = await call('delete_service', { service: 'try', confirm: 'try' });
    expect(deleted.data).toMatchObject({ deleted: true });
    const gone = await call('list_services', { deleted: true });
    expect(JSON.stringify(gone.data)).toContain(String(fork.data['service_id']));
    expect(
      (await call('restore_service', { service_id: fork.data['service_id'] })).data,
    ).toMatchObject({ status: 'READY' });
    await call('delete_service', { service: 'try', confirm: 'try' });

    expect((await call('stop_service', { service: 'shop', confirm: 'shop' })).data).toMatchObject({
      status: 'PAUSED',
    });
    const paused = await call('db_query', { service: 'shop', sql: 'select 1' });
    expect(paused).toMatchObject({ failed: true, data: { code: 'INVALID_STATE' } });
    expect(
      (
        await call('db_query', {
          service: 'shop',
          sql: 'select count(*) from orders',
          on_fork: true,
        })
      ).data['rows'],
    ).toEqual([['2']]);
    expect((await call('start_service', { service: 'shop' })).data).toMatchObject({
      status: 'READY',
    });
    expect(
      (await call('resize_service', { service: 'shop', cpu_millis: 1000 })).data,
    ).toMatchObject({
      status: 'READY',
      cpu_millis: 1000,
      memory_gbs: 4,
    });

    expect((await call('list_backups', { service: 'shop' })).data['snapshots']).toHaveLength(1);
    const verification = await call('verify_backup', { service: 'shop' });
    expect(
      (
        await call('wait_for_operation', {
          operation_id: verification.data['operation_id'],
          wait_seconds: 300,
        })
      ).data,
    ).toMatchObject({
      status: 'succeeded',
    });
    expect(
      (await call('cancel_operation', { operation_id: verification.data['operation_id'] })).failed,
    ).toBe(true);
    expect(
      (await call('get_operation', { operation_id: verification.data['operation_id'] })).data,
    ).toMatchObject({ kind: 'verifyBackup' });
    expect(
      (await call('list_operations', { service: 'shop', limit: 3 })).data['operations'],
    ).toHaveLength(3);
    expect(
      JSON.stringify(
        (await call('get_logs', { service: 'shop', search: ['ready'], limit: 1 })).data,
      ),
    ).toContain('ready to accept connections');
    await expect
      .poll(async () => (await call('get_metrics', { service: 'shop' })).text, { timeout: 200_000 })
      .toContain('memory_bytes');
    expect(
      JSON.stringify((await call('get_metrics', { service: 'shop', name: 'connections' })).data),
    ).toContain('points');
    expect((await call('get_usage')).data).toMatchObject({
      used: { services: expect.any(Number) },
    });
    expect((await call('list_regions')).text).toContain('forks');
  });
});

test('no fork is left of statements on forks', async () => {
  await expect
    .poll(async () => (await withStdio(({ call }) => call('list_services'))).text, {
      timeout: 100_000,
    })
    .not.toContain('-query');
});

test('storage is set at creation and resized without a restart; purge removes a service, or a deleted one, for good', async () => {
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
    expect((await call('resize_service', { service: 'purged', storage_gb: 4 })).data).toMatchObject(
      { status: 'READY', storage_gb: 4 },
    );

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
    expect((await call('restore_service', { service_id: id })).data).toMatchObject({
      code: 'NOT_FOUND',
    });

    const living = await call('create_service', { name: 'living', service_type: 'POSTGRES' });
    expect((await call('purge_service', { service: 'living', confirm: 'living' })).failed).toBe(
      false,
    );
    await expect
      .poll(async () => (await call('get_service', { service: living.data['service_id'] })).data, {
        timeout: 100_000,
      })
      .toMatchObject({ code: 'NOT_FOUND' });
    expect((await call('list_services', { deleted: true })).text).not.toContain('living');
  });
});

test('a dry run says what would be done and does nothing; the same key makes a call once', async () => {
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
    expect((await call('purge_service', { service: 'shop', confirm: 'shop' })).data).toMatchObject({
      code: 'FORBIDDEN',
      message: expect.stringContaining('admin'),
    });
    for (const name of ENDS)
      expect((await call(name, { service: 'shop', confirm: 'shop' })).data, name).toMatchObject({
        code: 'FORBIDDEN',
        message: expect.stringContaining('PROD'),
      });
  });
  expect((await cloud.get(await idOf('shop'))).status).toBe('READY');
});

async function idOf(name: string): Promise<string> {
  const { data } = await withStdio(({ call }) => call('get_service', { service: name }));
  return String(data['service_id']);
}

test('wrong arguments are named, and unknown things are told where to be found', async () => {
  await withStdio(async ({ call }) => {
    expect((await call('get_service', { service: 'nobody' })).data).toMatchObject({
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

/** A raw request to the HTTP face, with headers that fetch would not send. */
async function raw(
  headers: Record<string, string>,
  method = 'POST',
  path = '/mcp',
  body = '{}',
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const { port } = new URL(url);
    const sent = request(
      {
        host: '127.0.0.1',
        port,
        path,
        method,
        headers: { 'Content-Type': 'application/json', ...headers },
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part: string) => (text += part));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}

test('by HTTP nobody gets in without a key, from another page, or by another name', async () => {
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
    { HD_KEY: keys.viewer },
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
    { HD_API: 'http://127.0.0.1:9/public/api/v1', HD_KEY: 'a:b' },
  );
});
