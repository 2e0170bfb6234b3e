/**
 * Attacks of one tenant in `npm run soak:hostile`. Each is short and bounded: the soak chooses the
 * next one by its seed.
 */
import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { connectTo, type Installation } from './harness.ts';
import type { Service } from './harness-caller.ts';

export type Target = {
  cloud: Installation;
  /** The attacker's own project, service and keys. */
  projectId: string;
  service: Service & { initial_password: string };
  keys: { viewer: string; developer: string };
};

/** The limit of the attacker's tables, until the service has a quota that it may run into. */
const MOST_TABLE_BYTES = 500e6;

async function call(
  { cloud }: Target,
  key: string,
  method: string,
  path: string,
  body?: string,
  headers: Record<string, string> = {},
) {
  const answer = await fetch(`${cloud.apiUrl}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body }),
    signal: AbortSignal.timeout(30_000),
  });
  await answer.arrayBuffer();
  return answer.status;
}

const times = async (count: number, work: (n: number) => Promise<unknown>): Promise<void> => {
  await Promise.allSettled(Array.from({ length: count }, (_, n) => work(n)));
};

/** Runs statements as tsdbadmin; one that fails ends the attack, not the soak. */
async function statements({ cloud, service }: Target, ...texts: string[]): Promise<void> {
  const client = await connectTo(cloud, service, service.initial_password);
  try {
    await client.query("set statement_timeout = '20s'");
    for (const text of texts) await client.query(text);
  } finally {
    await client.end().catch(() => undefined);
  }
}

const services = ({ projectId }: Target): string => `/projects/${projectId}/services`;

export const ATTACKS: Record<string, (target: Target) => Promise<unknown>> = {
  'links of a viewer': (at) => times(50, () => call(at, at.keys.viewer, 'POST', '/auth/links')),
  'sessions of a viewer': (at) =>
    times(50, () => call(at, at.keys.viewer, 'POST', '/auth/sessions')),
  'refused calls with ids made up': (at) =>
    times(100, (n) =>
      call(
        at,
        n % 2 === 0 ? at.keys.viewer : at.keys.developer,
        'POST',
        `${services(at)}/${randomUUID().slice(0, 8)}${n}/stop`,
      ),
    ),
  'wrong keys': (at) =>
    times(20, (n) =>
      call(at, `HDnobody${n}:x`, 'DELETE', `${services(at)}/${at.service.service_id}`),
    ),
  'creates as dry runs, with Idempotency-Keys': (at) =>
    times(20, () =>
      call(
        at,
        at.keys.developer,
        'POST',
        `${services(at)}?dry_run=true`,
        '{"name":"none","service_type":"POSTGRES"}',
        {
          'Idempotency-Key': randomUUID(),
        },
      ),
    ),
  'changes of a developer': (at) =>
    times(5, (n) =>
      call(
        at,
        at.keys.developer,
        'POST',
        `${services(at)}/${at.service.service_id}/rename`,
        `{"name":"renamed ${n}"}`,
      ),
    ),
  'malformed and huge bodies': (at) =>
    times(20, (n) =>
      call(
        at,
        at.keys.developer,
        'POST',
        services(at),
        n % 3 === 0
          ? '['.repeat(5000) + ']'.repeat(5000)
          : n % 3 === 1
            ? '{"name":"\\ud800"}'
            : 'x'.repeat(70_000),
      ),
    ),
  'slow requests': async ({ cloud, keys }) => {
    const head =
      'POST /public/api/v1/auth/links HTTP/1.1\r\nHost: x\r\n' +
      `Authorization: Bearer ${keys.viewer}\r\nContent-Length: 60000\r\n`;
    const sockets = Array.from({ length: 30 }, (_, n) => {
      const socket = connect({ port: cloud.port, host: '127.0.0.1', localAddress: '127.0.1.7' });
      socket.on('error', () => undefined);
      socket.write(n % 2 === 0 ? head : `${head}\r\n `);
      return socket;
    });
    await sleep(3000);
    for (const socket of sockets) socket.destroy();
  },
  'reads of long log lines': async (at) => {
    await statements(
      at,
      "do $$ begin for n in 1..20 loop raise log '%', repeat('x', 1000000); end loop; end $$",
    ).catch(() => undefined);
    await times(8, () =>
      call(
        at,
        at.keys.viewer,
        'GET',
        `${services(at)}/${at.service.service_id}/logs?search=nothing`,
      ),
    );
  },
  'statements that only read': (at) =>
    times(10, () =>
      call(
        at,
        at.keys.developer,
        'POST',
        `${services(at)}/${at.service.service_id}/query`,
        JSON.stringify({ sql: "select pg_logical_emit_message(false, 'x', repeat('x', 1000000))" }),
      ),
    ),
  tables: async (at) => {
    const fill =
      'insert into bulk select repeat(md5(random()::text), 30) from generate_series(1, 20000)';
    await statements(
      at,
      'create table if not exists bulk (text text)',
      `do $$ begin if pg_total_relation_size('bulk') > ${MOST_TABLE_BYTES} then truncate ` +
        'bulk; end if; end $$',
      fill,
    );
  },
  WAL: (at) =>
    statements(
      at,
      "select count(pg_logical_emit_message(false, 'x', repeat('x', 1000000))) " +
        'from generate_series(1, 32)',
    ),
  'temporary files': (at) =>
    statements(
      at,
      "set work_mem = '64kB'",
      'select count(*) from (select random() as r ' +
        'from generate_series(1, 1000000) order by r) as x',
    ),
  memory: (at) =>
    statements(
      at,
      "select length(string_agg(repeat('x', 1000000), '')) from generate_series(1, 100)",
    ),
  connections: async ({ cloud, service }) => {
    const clients: Client[] = [];
    await times(60, async () =>
      clients.push(await connectTo(cloud, service, service.initial_password)),
    );
    await sleep(1000);
    await Promise.allSettled(clients.map((client) => client.end()));
  },
  'hostile catalog objects': (at) =>
    statements(
      at,
      'create schema if not exists evil',
      'create or replace function evil.pwn() returns text language plpgsql ' +
        "as 'begin perform pg_sleep(1); return current_user; end'",
      'create or replace view evil.pg_roles as select evil.pwn()::name as rolname',
      'create or replace view evil.pg_stat_activity as select evil.pwn() as state',
      'alter database tsdb set search_path = evil, pg_catalog',
      "alter role tsdbadmin set statement_timeout = '1h'",
    ),
};
