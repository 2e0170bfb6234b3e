import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { startupOptions } from '../../startup-options.ts';

const PACKAGES = fileURLToPath(new URL('../../../../../', import.meta.url));
const sources = readdirSync(PACKAGES, { recursive: true, encoding: 'utf8' }).filter((path) =>
  /^[a-z]+\/src\/.*(?<!\.test|\.testing)\.ts$/.test(path),
);
const textOf = (path: string): string => readFileSync(join(PACKAGES, path), 'utf8');

/** Modules that make a client of PostgreSQL themselves, how many, and of what. */
const EXCEPTIONS: Record<string, { clients: number; why: string }> = {
  'cli/src/transfer/endpoint.ts': { clients: 1, why: 'the user’s own, on the user’s machine' },
  'contract/src/connect.ts': { clients: 1, why: 'text that is shown to users' },
  'mcp/src/own-forks.ts': { clients: 1, why: 'the user’s own, in a fork that their key made' },
  'server/src/engine/postgres/sessions/superuser.ts': {
    clients: 1,
    why: 'the one way to open a session in a tenant’s server',
  },
  'server/src/engine/postgres/sessions/monitor.ts': {
    clients: 1,
    why: 'lives as long as its server, with the configuration of superuser.ts',
  },
  'server/src/engine/kubernetes/network/guard.ts': {
    clients: 1,
    why: 'the role that ends sessions on Kubernetes, which is no superuser',
  },
  'server/src/engine/statements/session.ts': {
    clients: 1,
    why: 'the role of statements through the API, which is no superuser',
  },
  'server/src/engine/postgres/replication/drill.ts': {
    clients: 1,
    why: 'a client that goes through the endpoint, with a password',
  },
  'server/src/engine/local/proxy/pooler.ts': { clients: 1, why: 'the admin console of PgBouncer' },
  'server/src/store/command-session.ts': { clients: 1, why: 'the metadata database' },
  'server/src/store/connections.ts': { clients: 1, why: 'the metadata database' },
  'server/src/store/database.ts': { clients: 2, why: 'the metadata database' },
};

test('sessions in tenants’ servers are opened in one way', () => {
  expect(sources.length).toBeGreaterThan(100);
  const found = sources.flatMap((path) => {
    const text = textOf(path);
    if (!/from 'pg'/.test(text)) return [];
    const clients = text.match(/\bnew (pg\.)?(Client|Pool)\(/g)?.length ?? 0;
    return clients === 0 ? [] : [[path, clients] as const];
  });
  expect(Object.fromEntries(found)).toEqual(
    Object.fromEntries(Object.entries(EXCEPTIONS).map(([path, { clients }]) => [path, clients])),
  );
});

test('only superuser.ts and the configuration files name our superuser as a user', () => {
  const naming = sources.filter((path) => /user: CONTROL_ROLE|user: 'howdah'/.test(textOf(path)));
  // The metadata database is ours, and PgBouncer's console has no SQL of a tenant's.
  expect(naming.toSorted()).toEqual([
    'server/src/engine/local/postgres/store-instance.ts',
    'server/src/engine/local/proxy/pooler.ts',
  ]);
});

test('parameters of a session are in the startup packet, which no owner can change', () => {
  const options = startupOptions({ limitMs: 5000, major: 18, superuser: true });
  for (const part of [
    '-c search_path=pg_catalog,pg_temp',
    '-c role=none',
    '-c statement_timeout=5000',
    '-c lock_timeout=2000',
    '-c idle_in_transaction_session_timeout=60000',
    '-c row_security=off',
    '-c event_triggers=off',
    '-c transaction_timeout=0',
    '-c session_preload_libraries= ',
    '-c local_preload_libraries= ',
    String.raw`-c default_transaction_isolation=read\ committed`,
    '-c default_transaction_read_only=off',
  ])
    expect(`${options} `, part).toContain(part);
  expect(startupOptions({ limitMs: 1, readOnly: true, major: 18, superuser: true })).toContain(
    '-c default_transaction_read_only=on',
  );
  // The startup packet ends at 10,000 bytes, and unknown parameters end the session.
  expect(options.length).toBeLessThan(3000);
  expect(startupOptions({ limitMs: 1, major: 16, superuser: true })).not.toMatch(
    /event_triggers|transaction_timeout/,
  );
  // A role without rights may not set these.
  expect(startupOptions({ limitMs: 1, major: 18, superuser: false })).not.toMatch(
    /event_triggers|session_preload|replication_role|system_table/,
  );
});
